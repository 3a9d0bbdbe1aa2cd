"""Reports: figures, tables and one self-contained HTML page. matplotlib is loaded only when figures are drawn."""

from skewtool.report.writing import HOTTEST, write_report

__all__ = ["HOTTEST", "write_report"]
