"""Explorers: controls beside a picture, to move a lesson's main quantity by hand.

There are two kinds. Most are calculated and drawn in the page, here and on the website: the
JavaScript module of the same name does all of that, and Python only sends data and controls, see
`similarity_explorer`; `browser_explorer` is what they share. The kernel sends its data to one of
them, `training_explorer`, while it is shown, so it does not move on the website. The other kind,
`language_explorer` and `next_token_explorer`, needs a model for each change: Python draws it, see
`kernel_explorer`.
"""

from course_utils.explorers.browser_explorer import BrowserExplorer
from course_utils.explorers.cache import cache_explorer
from course_utils.explorers.fit import fit_explorer
from course_utils.explorers.head import head_explorer
from course_utils.explorers.kernel_explorer import Explorer, Number
from course_utils.explorers.language import language_explorer
from course_utils.explorers.mask import mask_explorer
from course_utils.explorers.memory import memory_explorer
from course_utils.explorers.next_token import next_token_explorer
from course_utils.explorers.positions import positions_explorer
from course_utils.explorers.ring import ring_explorer
from course_utils.explorers.saturation import saturation_explorer
from course_utils.explorers.scaling import scaling_explorer
from course_utils.explorers.sentence import sentence_explorer
from course_utils.explorers.similarity import similarity_explorer
from course_utils.explorers.tile import tile_explorer
from course_utils.explorers.training import training_explorer
from course_utils.explorers.views import views_explorer

__all__ = [
    "Explorer",
    "BrowserExplorer",
    "Number",
    "cache_explorer",
    "fit_explorer",
    "head_explorer",
    "language_explorer",
    "mask_explorer",
    "memory_explorer",
    "next_token_explorer",
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
