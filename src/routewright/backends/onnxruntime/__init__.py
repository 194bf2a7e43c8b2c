"""ONNX Runtime on the CPU: the embedded default backend.

Nothing here imports ``onnxruntime`` before a backend is made, so listing backends works without
it. The parts, in the order a route passes through them:

* :mod:`.transformers` finds out which graph transformers the installed version knows,
* :mod:`.knobs` turns these, the session settings and the model's int8 blocks into knobs,
* :mod:`.settings` reads a route back into session settings,
* :mod:`.preparation`, :mod:`.blocks`, :mod:`.calibration` and :mod:`.quantization` write the int8
  model that a route asks for,
* :mod:`.engine` is the session that runs, :mod:`.tensors` carries arrays in and out of it,
* :mod:`.fingerprint` says what the session is,
* :mod:`.reference` computes the outputs that every engine is held against.
"""
