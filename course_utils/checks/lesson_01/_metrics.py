"""Lesson 01's shared piece: what "near" means, large for near in all three."""

from course_utils.attention import cosine_similarity, dot_product_scores, euclidean_distance

METRICS = {
    "dot": dot_product_scores,
    "cosine": cosine_similarity,
    "euclidean": lambda q, k: -euclidean_distance(q, k),
}  # each (..., L, d), (..., S, d) -> (..., L, S)
