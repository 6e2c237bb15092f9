"""Networks for other people's programs: ONNX files."""

from nelu_cli.export.onnx_file import Exported, export_onnx

__all__ = ["Exported", "export_onnx"]
