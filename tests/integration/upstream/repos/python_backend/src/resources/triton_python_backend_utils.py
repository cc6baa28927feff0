"""Synthetic upstream: what a model imports. The stub adds Tensor, InferenceRequest, InferenceResponse and TritonError."""

import json

__all__ = [
    "Logger",
    "TritonModelException",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "triton_string_to_numpy",
]

_NUMPY_NAMES = {"TYPE_STRING": "object_", "TYPE_FP16": "float16", "TYPE_FP32": "float32", "TYPE_FP64": "float64"}


class TritonModelException(Exception):
    """What a model raises to fail a request."""


def _named(tensors, name):
    return next((each for each in tensors if each.name() == name), None)


def get_input_tensor_by_name(inference_request, name):
    """Return the request's tensor of this name, None if there is none."""
    return _named(inference_request.inputs(), name)


def get_output_tensor_by_name(inference_response, name):
    """Return the response's tensor of this name, None if there is none."""
    return _named(inference_response.output_tensors(), name)


def _config(model_config, kind, name):
    config = json.loads(model_config) if isinstance(model_config, str) else model_config
    return next((each for each in config.get(kind, []) if each["name"] == name), None)


def get_input_config_by_name(model_config, name):
    """Return what the model's configuration says of an input, None if nothing."""
    return _config(model_config, "input", name)


def get_output_config_by_name(model_config, name):
    """Return what the model's configuration says of an output, None if nothing."""
    return _config(model_config, "output", name)


def triton_string_to_numpy(triton_type_string):
    """Return numpy's type for TYPE_FP32 and the like."""
    import numpy

    name = _NUMPY_NAMES.get(triton_type_string, triton_type_string.removeprefix("TYPE_").lower())
    return numpy.bool_ if name == "bool" else getattr(numpy, name)


class Logger:
    """Messages for the server's log."""

    @staticmethod
    def log_info(message):
        print(message, flush=True)
