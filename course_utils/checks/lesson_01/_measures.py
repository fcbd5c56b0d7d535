"""The three measures of lesson 01, with the sign that makes a large number mean similar."""

from course_utils.attention import cosine_similarity, dot_product_scores, euclidean_distance

MEASURES = {
    "dot": dot_product_scores,
    "cosine": cosine_similarity,
    "euclidean": lambda q, k: -euclidean_distance(q, k),
}  # each (..., L, d), (..., S, d) -> (..., L, S)
