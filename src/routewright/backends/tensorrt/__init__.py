"""TensorRT and TensorRT-RTX: one backend, two libraries.

The parts, from the bottom up:

* :mod:`log`, :mod:`library`: finding a library, listening to it, asking what it can do.
* :mod:`options`: what a job may set.
* :mod:`cuda`, :mod:`streams`, :mod:`device`, :mod:`dtypes`: devices, memory, readings, numbers.
* :mod:`profiles`, :mod:`network`: from an ONNX file to a network with shapes.
* :mod:`config_knobs`, :mod:`build_route`, :mod:`knobs`: the four kinds of knobs.
* :mod:`caches`, :mod:`progress`, :mod:`build`: from a network and a route to a plan.
* :mod:`inspector`, :mod:`plan`: fingerprints, and plans on disk.
* :mod:`bindings`, :mod:`engine`: running and timing.
* :mod:`backend`: all of it together.
"""
