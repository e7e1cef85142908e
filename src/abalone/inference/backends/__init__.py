"""The libraries that run the neural part of a finished model: torch, or ONNX without torch."""
