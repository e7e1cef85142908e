"""A finished model: its folder, its predictions, and its ONNX file."""
