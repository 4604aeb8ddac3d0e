"""ONNX models to graphs and back."""

from xflow.onnx_export import export_model
from xflow.onnx_import import Imported, import_model
from xflow.onnx_region import region_model
from xflow.onnx_writer import UnwritableError

__all__ = ["Imported", "UnwritableError", "export_model", "import_model", "region_model"]
