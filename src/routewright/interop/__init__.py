"""Other tuners' files and commands, in and out: trtexec's tuner and Torch-TensorRT's."""
