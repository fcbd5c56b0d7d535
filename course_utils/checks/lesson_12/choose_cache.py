"""12.8: the cache of at most a quarter of the bytes with the least loss, measured."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.lesson_12._reading import NAMES, reader, texts


def choose_cache(read, names, to_choose, held_out):
    def measure(name, some):
        loss, count, held = 0.0, 0, 0
        for tokens in some:
            logits, nbytes = read(tokens, name)  # (L, V)
            loss += F.cross_entropy(logits[:-1], tokens[1:], reduction="sum").item()
            count += len(tokens) - 1
            held += nbytes
        return loss / count, held

    whole = measure(names[0], to_choose)[1]
    fits = {}
    for i, name in enumerate(names):
        loss, held = measure(name, to_choose)
        if held <= whole / 4:
            fits[i] = loss
    best = min(fits, key=fits.get)
    loss_of_whole, whole = measure(names[0], held_out)
    loss, held = measure(names[best], held_out)
    return best, held / whole, loss - loss_of_whole


def by_lists(read, names, to_choose, held_out):
    def measure(name, some):
        rows = [read(tokens, name) for tokens in some]
        logits = torch.cat([each[:-1] for each, _ in rows])
        following = torch.cat([tokens[1:] for tokens in some])
        picked = logits.log_softmax(-1).gather(1, following[:, None])
        return -picked.mean(), sum(held for _, held in rows)

    table = [measure(name, to_choose) for name in names]
    losses = [loss if held * 4 <= table[0][1] else torch.inf for loss, held in table]
    best = losses.index(min(losses))
    (base, whole), (loss, held) = (measure(names[i], held_out) for i in (0, best))
    return best, held / whole, (loss - base).item()


def inputs():
    def probe(seed, names, even=(12, 60, 20), odd=(31, 9, 15)):
        return reader(seed), names, texts(seed, even), texts(seed + 100, odd)

    long = {"even": (60, 30, 80), "odd": (71, 13, 55)}
    return [
        probe(1, NAMES),
        probe(2, NAMES, **long),
        probe(3, ["whole", *NAMES[:0:-1]]),
        probe(4, ["whole", "8 bits", "2 bits", "1 bit", "4 bits"]),
        probe(5, ["whole", "window", "1 bit", "2 bits"], **long),
        probe(7, NAMES, odd=(71, 55, 63)),
        probe(8, ["whole", "window", "3 bits", "2 bits"], even=(22, 20, 22)),
        probe(6, ["whole", "3 bits", "8 bits", "1 bit"]),
    ]


WHOLE_BYTES = "whole = measure(names[0], to_choose)[1]"
CHOOSE = "loss, held = measure(name, to_choose)"
FITS = "if held <= whole / 4:"
BEST = "best = min(fits, key=fits.get)"
OF_WHOLE = "loss_of_whole, whole = measure(names[0], held_out)"
OF_BEST = "loss, held = measure(names[best], held_out)"
RETURN = "return best, held / whole, loss - loss_of_whole"
ENTROPY = 'F.cross_entropy(logits[:-1], tokens[1:], reduction="sum").item()'
COUNT, ALL = "count += len(tokens) - 1", "return loss / count, held"
OWN = "F.cross_entropy(logits[:-1], tokens[1:]).item()"
MISTAKES = [
    ("no limit",
     "Your choice is the cache with the least loss of all. It holds more than a quarter of the "
     "bytes. Compare only caches that hold at most a quarter.",
     (FITS, "if i:")),
    ("the whole cache",
     "Your choice is the whole cache. It holds all of the bytes. Compare only caches that hold at "
     "most a quarter.",
     (FITS, "if True:")),
    ("half of the bytes",
     "Your limit is above a quarter of the bytes. Keep only the caches with at most a quarter of "
     "what the whole cache holds.",
     (FITS, "if held <= whole * 0.6:")),
    ("less than a quarter",
     "Your choice leaves out a cache with exactly a quarter of the bytes. At most a quarter is "
     "allowed. Use <=.",
     (FITS, "if held < whole / 4:")),
    ("the smallest",
     "Your choice is the cache with the fewest bytes. Among those with at most a quarter, choose "
     "the one with the least loss.",
     (CHOOSE, "loss, held = measure(name, to_choose)[::-1][:1] * 2")),
    ("the largest that fits",
     "Your choice is the cache with the most bytes among those that fit. More bytes are not always "
     "a smaller loss. Choose the one with the least loss.",
     ("fits[i] = loss", "fits[i] = -held")),
    ("the largest loss",
     "Your choice has the largest loss of the caches that fit. Choose the one with the least loss.",
     (BEST, BEST.replace("min", "max"))),
    ("chosen on the others",
     "Your choice is the one that you get on `held_out`. These texts are meant to test the choice. "
     "Choose on `to_choose`.",
     (WHOLE_BYTES, WHOLE_BYTES.replace("to_choose", "held_out")),
     (CHOOSE, CHOOSE.replace("to_choose", "held_out"))),
    ("losses of the others",
     "Your choice is the one that you get if the losses are measured on `held_out`. These texts "
     "are meant to test the choice. Choose on `to_choose`.",
     (CHOOSE, "loss, held = measure(name, held_out)[0], measure(name, to_choose)[1]")),
    ("bytes of the others",
     "Your choice is the one that you get if the bytes are counted on `held_out`. Choose on "
     "`to_choose`, by bytes and by loss.",
     (FITS, "if measure(name, held_out)[1] <= measure(names[0], held_out)[1] / 4:")),
    ("each text fits",
     "Your choice leaves out a cache that holds at most a quarter of the bytes of all texts "
     "together. Add up the bytes of all texts before you compare.",
     (FITS, "if all(4 * read(t, name)[1] <= read(t, names[0])[1] for t in to_choose):")),
    ("some text fits",
     "Your choice holds more than a quarter of the bytes of all texts together. Add up the bytes "
     "of all texts before you compare.",
     (FITS, "if any(4 * read(t, name)[1] <= read(t, names[0])[1] for t in to_choose):")),
    ("chosen on all",
     "Your choice is the one that you get on all texts together. Keep `held_out` for the test, and "
     "choose on `to_choose` alone.",
     (WHOLE_BYTES, WHOLE_BYTES.replace("to_choose", "to_choose + held_out")),
     (CHOOSE, CHOOSE.replace("to_choose", "to_choose + held_out"))),
    ("reported on what chose it",
     "Your share and your extra loss come from `to_choose`, the texts that the cache was chosen "
     "on. Report both on `held_out`.",
     (OF_WHOLE, OF_WHOLE.replace("held_out", "to_choose")),
     (OF_BEST, OF_BEST.replace("held_out", "to_choose"))),
    ("loss of what chose it",
     "Your share is right, but your extra loss comes from `to_choose`. Report it on `held_out`.",
     (RETURN, "loss, loss_of_whole = (measure(names[i], to_choose)[0] for i in (best, 0))\n    "
      + RETURN)),
    ("share of what chose it",
     "Your extra loss is right, but your share of the bytes comes from `to_choose`. Report it on "
     "`held_out`.",
     (RETURN, "held, whole = (measure(names[i], to_choose)[1] for i in (best, 0))\n    " + RETURN)),
    ("reported on all",
     "Your share and your extra loss come from all texts together. Report both on `held_out` "
     "alone.",
     (OF_WHOLE, OF_WHOLE.replace("held_out", "to_choose + held_out")),
     (OF_BEST, OF_BEST.replace("held_out", "to_choose + held_out"))),
    ("compared across texts",
     "Your extra loss compares the whole cache on `to_choose` with your choice on `held_out`. "
     "Measure both on `held_out`.",
     (RETURN, "loss_of_whole = measure(names[0], to_choose)[0]\n    " + RETURN)),
    ("compared with other texts",
     "Your share and your extra loss compare your choice on `held_out` with the whole cache on "
     "`to_choose`. Measure both on `held_out`.",
     (OF_WHOLE, OF_WHOLE.replace("held_out", "to_choose"))),
    ("whole bytes of other texts",
     "Your share divides the bytes on `held_out` by those of the whole cache on `to_choose`. Use "
     "`held_out` for both.",
     (RETURN, "whole = measure(names[0], to_choose)[1]\n    " + RETURN)),
    ("loss itself",
     "Your last entry is the loss of your choice. Subtract the loss of the whole cache.",
     ("loss - loss_of_whole", "loss")),
    ("negative extra loss",
     "Your extra loss has the wrong sign. Subtract the loss of the whole cache from the loss of "
     "your choice.",
     ("loss - loss_of_whole", "loss_of_whole - loss")),
    ("relative loss",
     "Your extra loss is divided by the loss of the whole cache. Return the difference.",
     ("loss - loss_of_whole", "loss / loss_of_whole - 1")),
    ("ratio of losses",
     "Your last entry is the ratio of the two losses. Return their difference.",
     ("loss - loss_of_whole", "loss / loss_of_whole")),
    ("perplexities",
     "Your last entry is a difference of perplexities. Return the difference of the losses, "
     "without exp.",
     ("loss - loss_of_whole", "torch.tensor(loss).exp() - torch.tensor(loss_of_whole).exp()")),
    ("bits of loss",
     "Your losses are in bits. Use the natural logarithm, as cross_entropy does.",
     ("loss - loss_of_whole", "(loss - loss_of_whole) / 0.6931472")),
    ("bytes in place of the share",
     "Your second entry is a number of bytes. Divide it by the bytes of the whole cache.",
     ("held / whole", "held")),
    ("saved share",
     "Your second entry is the share of the bytes that are saved. Return the share that is held.",
     ("held / whole", "1 - held / whole")),
    ("how many times smaller",
     "Your second entry is the bytes of the whole cache divided by those of your choice. Return "
     "the inverse, the share of the bytes that your choice holds.",
     ("held / whole", "whole / held")),
    ("percent",
     "Your second entry is in percent. Return a share from 0 to 1.",
     ("held / whole", "100 * held / whole")),
    ("not shifted",
     "Your loss compares each row of logits with the token that it has just read. Row i predicts "
     "token i + 1, so compare logits[:-1] with tokens[1:].",
     (ENTROPY, 'F.cross_entropy(logits, tokens, reduction="sum").item()'),
     (COUNT, "count += len(tokens)")),
    ("shifted the other way",
     "Your loss compares each row of logits with the token before. Row i predicts token i + 1, so "
     "compare logits[:-1] with tokens[1:].",
     (ENTROPY, 'F.cross_entropy(logits[1:], tokens[:-1], reduction="sum").item()')),
    ("not shifted, mean of the texts' means",
     "Your loss compares each row of logits with the token that it has just read. Row i predicts "
     "token i + 1, so compare logits[:-1] with tokens[1:].",
     (ENTROPY, "F.cross_entropy(logits, tokens).item()"), (COUNT, "count += 1")),
    ("mean of the texts' means",
     "Your loss is averaged for each text first, so that tokens of short texts count more. Average "
     "over all predicted tokens at once.",
     (ENTROPY, OWN), (COUNT, "count += 1")),
    ("summed loss",
     "Your losses are sums over tokens. Divide by the number of predicted tokens.",
     (ALL, "return loss, held")),
    ("sum of the texts' means",
     "Your losses are sums of the means of the texts. Average over all predicted tokens at once.",
     (ENTROPY, OWN), (ALL, "return loss, held")),
    ("divided by all tokens",
     "Your losses are divided by the number of tokens. The first token of a text is not predicted, "
     "so a text of L tokens has L − 1 predictions.",
     (COUNT, "count += len(tokens)")),
    ("last text alone",
     "Your bytes are those of the last text alone. Add the bytes of all texts.",
     ("held += nbytes", "held = nbytes")),
    ("first text alone",
     "Your result uses the first text alone. Measure on all texts.",
     ("in some:", "in some[:1]:")),
    ("errors counted",
     "Your loss is the share of wrong next tokens. Use the mean cross-entropy.",
     (ENTROPY, "(logits[:-1].argmax(dim=-1) != tokens[1:]).sum().item()")),
    ("index missing",
     "Your result has two numbers. Return three: the index, the share of the bytes and the extra "
     "loss.",
     ("return best, held", "return held")),
    ("mean of shares",
     "Your share is a mean of the shares of the texts. Add the bytes of all texts, then divide.",
     (RETURN, "shares = [read(t, names[best])[1] / read(t, names[0])[1] for t in held_out]\n    "
      + RETURN.replace("held / whole", "sum(shares) / len(shares)"))),
    ("name in place of the index",
     "Your index is one too small. The whole cache has index 0 in `names`, so count it too.",
     ("return best,", "return best - 1,")),
    ("loss before the share",
     "The extra loss and the share are swapped. Return the share first.",
     ("held / whole, loss - loss_of_whole", "loss - loss_of_whole, held / whole")),
    ("choice alone",
     "Your result is only the choice. Return the index, the share of the bytes and the extra loss.",
     (RETURN, "return best")),
]  # fmt: skip

exercise = Exercise("12.8", choose_cache, inputs, MISTAKES, also_right=[by_lists])
