"""Explorers: controls beside a picture, to move a lesson's main quantity by hand.

A new explorer is a function that draws a figure, names its controls, and says what moves:
see `similarity_explorer`. Each lesson's has a file of its own; `base` is what they share.
"""

from course_utils.explorers.base import Explorer, Number
from course_utils.explorers.heads import head_explorer
from course_utils.explorers.language import language_explorer
from course_utils.explorers.masks import mask_explorer
from course_utils.explorers.positions import positions_explorer
from course_utils.explorers.ring import ring_explorer
from course_utils.explorers.saturation import saturation_explorer, scaling_explorer
from course_utils.explorers.sentence import sentence_explorer
from course_utils.explorers.similarity import similarity_explorer
from course_utils.explorers.tiles import tile_explorer
from course_utils.explorers.training import training_explorer
from course_utils.explorers.views import views_explorer

__all__ = [
    "Explorer",
    "Number",
    "head_explorer",
    "language_explorer",
    "mask_explorer",
    "positions_explorer",
    "ring_explorer",
    "saturation_explorer",
    "scaling_explorer",
    "sentence_explorer",
    "similarity_explorer",
    "tile_explorer",
    "views_explorer",
    "training_explorer",
]
