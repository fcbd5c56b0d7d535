"""The data of the lessons, as their loaders give them."""

import torch

from course_utils.attention import cosine_similarity
from course_utils.data import load_word_vectors
from tools import make_word_vectors


def test_each_word_has_its_vector():
    words, vectors = load_word_vectors()
    assert words == make_word_vectors.WORDS and all(type(word) is str for word in words)
    assert vectors.shape == (71, 384) and vectors.dtype == torch.float32
    likeness = cosine_similarity(vectors, vectors).fill_diagonal_(-1)
    nearest = {word: words[i] for word, i in zip(words, likeness.argmax(dim=-1), strict=True)}
    for word, other in [("king", "queen"), ("paris", "france"), ("cat", "kitten")]:
        assert (nearest[word], nearest[other]) == (other, word)
