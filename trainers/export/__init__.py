"""Checkpoints for the world outside: ONNX, safetensors and a model card. See `pylos-export`."""
