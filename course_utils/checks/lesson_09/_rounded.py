"""The mistake of positions in 16 bits, which 9.1, 9.5 and 9.11 name."""

HINT = (
    "Your positions are rounded to {}, which keeps {} significant bits. Above {}, some neighboring "
    "positions become equal. Use {}."
)


def rounded(find, replace, use):
    """Return two rows of mistakes, for bfloat16 and float16.

    Parameters
    ----------
    find, replace : str
        What of the right answer is changed, and to what, with {} for the conversion.
    use : str
        What the hint advises to use.
    """
    return [
        ("bfloat16", HINT.format("bfloat16", 8, 256, use), (find, replace.format(".bfloat16()"))),
        ("float16", HINT.format("float16", 11, 2048, use), (find, replace.format(".half()"))),
    ]
