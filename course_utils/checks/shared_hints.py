"""Hints that several exercises give, written once."""

NOT_SCALED = "Your result is right, except that the scores are not scaled. Divide them by √d_k."
DIVIDED_BY_D_K = "Your scores are divided by d_k. Divide them by its square root, √d_k."
HALF_OF_D_K = (
    "Your scores are divided by d_k / 2. Divide them by √d_k: `d_k**0.5`. (If you wrote "
    "`d_k**1/2`, Python reads it as `(d_k**1) / 2`.)"
)
MULTIPLIED = "Your scores are multiplied by √d_k. Divide them by √d_k."
BY_D_MODEL = (
    "Your scores are divided by √d_model. A score in one head is a sum of only d_k products, so "
    "divide by √d_k."
)
BY_D_V = (
    "Your scores are divided by √d_v, where d_v is the width of the values. Scores come from "
    "queries and keys, so divide by √d_k."
)
OVER_QUERIES = (
    "Your softmax runs over the queries. The weights of each query must sum to 1, so use `dim=-1`."
)
TRANSPOSED = (
    "Your numbers are right, but your result is transposed. Make the queries its rows and the keys "
    "its columns."
)
WEIGHTS_TOO_EARLY = "Your result is the softmax of the scores. Return the scores, without softmax."
WEIGHTS_ALONE = "You return the weights. Multiply the values by them: weights @ v."
TWO_THINGS = (
    "You return only the output. Return two results: the output and the weights, in this order."
)
MASK_NOT_USED = "Your result is the one without a mask. Apply the mask."
MASK_INVERTED = (
    "Your mask is inverted. True means that the query may attend to the key. Forbid the keys where "
    "the mask is False."
)
CAUSAL_BY_HABIT = (
    "Your result is causal, but here every query may attend to all keys. Leave out the causal mask."
)
SCORES_FOR_WEIGHTS = (
    "The output is right, but your second result is the scores. Return the weights, which are the "
    "scores after softmax."
)
AS_WIDE_AS_KEYS = (
    "Right when d_v = d_k. Otherwise you get an error. If you create a tensor for the output, make "
    "it d_v wide, because the output is as wide as the values."
)
FIRST_KEY_LEFT_OUT = (
    "You leave out the first key. Positions are counted from 0, so start the loop over blocks of "
    "keys at 0."
)
FIRST_KEYS_LEFT_OUT = (
    "You leave out the first block of keys. Start the loop over blocks of keys at 0."
)
OVER_THE_FIRST = (
    "Your softmax runs over the first dimension, which holds the queries or the batch. Softmax "
    "must run over the keys, so use `dim=-1`."
)
OVER_DIMENSION_1 = (
    "Your result is right for matrices. With more dimensions, your softmax runs over dimension 1, "
    "which no longer holds the keys. Use `dim=-1`."
)
SCALED_TWICE = "Your scores are divided by d_k. Divide by √d_k, and check that you scale only once."
LAST_KEYS_DROPPED = (
    "You leave out the last keys when block_k does not divide S. Include the last, shorter block "
    "of keys."
)
LAST_QUERIES_DROPPED = (
    "You leave out the last queries when block_q does not divide L. Include the last, shorter "
    "block of queries."
)
LAST_QUERIES_ZERO = (
    "Your result is zero for the last queries when block_q does not divide L. Compute the last, "
    "shorter block as well."
)
STARTS_FINITE = (
    "Your result is NaN where all scores lie far below the initial value of m. Every e^(score − m) "
    "is 0 there, and 0 / 0 is NaN. Initialize m to −∞."
)
COUNTED_FROM_1 = "Your layer or head is counted from 1. Count both from 0."
VALUES_ROTATED = (
    "Your values are rotated as well. A position decides where a query looks, but not what it "
    "receives. Leave the values as they are."
)
INTERLEAVED = (
    "Your positions are right, but you use the interleaved layout. Leave `interleaved` at its "
    "default, False."
)
