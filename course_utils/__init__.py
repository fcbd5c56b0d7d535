"""Shared parts of the attention course: figures, explorers, checks, and the attention you build."""

from course_utils.checks import check, progress
from course_utils.figures import heatmap, show
from course_utils.predictions import predict_first, surprises

__all__ = ["check", "heatmap", "predict_first", "progress", "show", "surprises"]
