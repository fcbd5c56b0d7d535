RIGHT = {
    "average": [
        lambda values: values.sum(0) / len(values),
        lambda values: sum(values) / values.shape[0],
        lambda values: values.T.mean(-1),
    ]
}
WRONG = []
HINTS = {
    "average": {
        "sum of rows": "divides it by their number n",
        "mean of each row": "over the rows, dimension 0",
        "mean of everything": "one number for the whole table",
        "divided by the width": "divide by n",
        "median of rows": "median",
        "kept a dimension": "without keepdim",
    }
}
