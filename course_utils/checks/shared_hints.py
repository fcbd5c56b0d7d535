"""Hints that several exercises give, written once."""

NOT_SCALED = "right, but for the scale: the scores are not divided by √d_k"
DIVIDED_BY_D_K = "divided by d_k: the square root is missing"
HALF_OF_D_K = "divided by d_k / 2, for ** comes before / in d_k**1/2: write d_k**0.5"
MULTIPLIED = "multiplied by √d_k where it should be divided"
BY_D_MODEL = "divided by √d_model: a head's scores are sums over d_k products, so √d_k"
BY_D_V = "divided by √d_v, the width of the values; scores are made of keys: √d_k"
OVER_QUERIES = "softmax runs over the queries: the weights of a query must sum to 1, dim=-1"
TRANSPOSED = "right numbers, but transposed: rows are queries, columns are keys"
WEIGHTS_TOO_EARLY = "those are weights already; the scores are asked, before any softmax"
WEIGHTS_ALONE = "those are the weights; multiply them with the values"
TWO_THINGS = "return two things, output and weights, in this order"
MASK_NOT_USED = "the mask is not used"
MASK_INVERTED = "the mask is turned around: True = may attend"
LOST_SIGN = "negative products lost their sign; opposite directions must count against"
OWN_COLUMNS = "a head's columns are neighbours, head h takes h · d_k to (h + 1) · d_k"
DEALT_OUT = f"the heads are dealt out column by column: {OWN_COLUMNS}"
TAKEN_FOR_WIDTH = "num_heads is taken for the width of a head: there should be num_heads of them"
OVER_THE_FIRST = (
    "softmax runs over the first dimension: queries, or items of a batch; write dim=-1, the keys"
)
OVER_DIMENSION_1 = (
    "right for matrices; with leading dimensions softmax runs over dimension 1 (F.softmax without "
    "dim does not take the last of more than two either): write dim=-1"
)
SCALED_TWICE = "divided by d_k: the square root is missing, or the scores are divided twice"
LAST_KEYS_DROPPED = "the keys left over when S is no multiple of block_k are dropped"
LAST_QUERIES_DROPPED = "the queries left over when L is no multiple of block_q are dropped"
LAST_QUERIES_ZERO = "the queries left over when L is no multiple of block_q keep their zeros"
STARTS_FINITE = (
    "NaN where all scores lie far below the number that m begins with: e^(score − m) is 0 for all "
    "of them, and 0 / 0 is NaN; begin with −∞"
)
