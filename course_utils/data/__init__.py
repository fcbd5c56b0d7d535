"""The data of the lessons and its loaders. README.md documents the sources."""

from pathlib import Path

import numpy as np
import torch


def load_word_vectors():
    """Return everyday English words and their vectors in a real language model.

    Returns
    -------
    words : list of str
        71 words.
    vectors : torch.Tensor, (71, 384), float32
        One row per word: its token embedding in all-MiniLM-L6-v2.
    """
    with np.load(Path(__file__).with_name("word_vectors.npz")) as stored:
        return stored["words"].tolist(), torch.from_numpy(stored["vectors"]).float()
