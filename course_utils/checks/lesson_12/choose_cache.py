"""12.8: of the caches of at most a quarter of the bytes, the one with the smallest loss."""

import torch
import torch.nn.functional as F

from course_utils.checks.compare import is_same
from course_utils.checks.exercise import Exercise, NamedMistake, call_with_clones
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
        probe(3, ["uncompressed", *NAMES[:0:-1]]),
        probe(4, ["uncompressed", "8 bits", "2 bits", "1 bit", "4 bits"]),
        probe(5, ["uncompressed", "window", "1 bit", "2 bits"], **long),
        probe(7, NAMES, odd=(71, 55, 63)),
        probe(8, ["uncompressed", "window", "3 bits", "2 bits"], even=(22, 20, 22)),
        probe(6, ["uncompressed", "3 bits", "8 bits", "1 bit"]),
        probe(9, NAMES, even=(40, 12, 14, 10)),
        probe(10, NAMES, even=(10, 14, 70)),
        probe(11, NAMES, even=(70, 18, 24)),
        probe(12, NAMES, even=(12, 60, 70)),  # a cache fits in all, but not in the mean of shares
        probe(13, NAMES, even=(40, 36, 38)),  # a cache takes more than 1/4, but less than 1/3.5
        probe(14, ["uncompressed", "4 bits, a better model", "2 bits", "3 bits"]),
    ]


def measured(read, name, some):
    """Return the loss and the bytes of a cache on some texts."""
    rows = [(tokens, *read(tokens, name)) for tokens in some]
    losses = [F.cross_entropy(x[:-1], tokens[1:], reduction="none") for tokens, x, _ in rows]
    return torch.cat(losses).mean().item(), sum(held for *_, held in rows)


TOO_LARGE = (
    "Your share and your extra loss are right for the cache that you chose, {!r}. But on "
    "`to_choose`, this cache takes more than a quarter of the bytes. Add up the bytes over all "
    "texts, and compare 4 times this sum with that of the uncompressed cache."
)
NOT_BEST = (
    "Your share and your extra loss are right for the cache that you chose, {!r}. But another "
    "cache that fits has a smaller loss on `to_choose`. Compare all caches that fit by their mean "
    "cross-entropy over all predicted tokens of these texts."
)


def run(answer, read, names, to_choose, held_out):
    """Run an answer, and say what is wrong with a choice whose share and loss are right."""
    found = call_with_clones(answer, read, names, to_choose, held_out)
    best, (result,) = choose_cache(read, names, to_choose, held_out)[0], found
    if not isinstance(result, tuple | list) or len(result) != 3:
        return found
    if isinstance(result[0], str):
        hint = "Your first result is a name. Return the index of this cache in `names`."
        raise NamedMistake("the name", hint)
    for i, name in enumerate(names):
        if i != best and is_same(result[0], i):
            (base, of_base), (loss, held) = (measured(read, n, held_out) for n in (names[0], name))
            if is_same(tuple(result), (i, held / of_base, loss - base)):
                fits = 4 * measured(read, name, to_choose)[1]
                fits = fits <= measured(read, names[0], to_choose)[1]
                hint = (NOT_BEST if fits else TOO_LARGE).format(name)
                raise NamedMistake("another cache", hint)
    return found


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
     "Your choice is the compressed cache with the smallest loss of all. It takes more than a "
     "quarter of the bytes. Compare only caches that take at most a quarter.",
     (FITS, "if i:")),
    ("the whole cache",
     "Your choice is the uncompressed cache. Compare only caches that take at most a quarter of "
     "its bytes.",
     (FITS, "if True:")),
    ("limit of a half",
     "The cache that you chose takes more than a quarter of the bytes. Consider only caches that "
     "take at most a quarter of what the uncompressed cache takes on `to_choose`.",
     (FITS, "if held <= whole / 2:")),
    ("half of the bytes",
     "The cache that you chose takes more than a quarter of the bytes. Consider only caches that "
     "take at most a quarter of what the uncompressed cache takes on `to_choose`.",
     (FITS, "if held <= whole * 0.6:")),
    ("less than a quarter",
     "You leave out a cache that takes exactly a quarter of the bytes. At most a quarter is "
     "allowed, so use <=.",
     (FITS, "if held < whole / 4:")),
    ("the smallest",
     "Your choice is the cache with the fewest bytes. Of the caches that take at most a quarter, "
     "choose the one with the smallest loss.",
     (CHOOSE, "loss, held = measure(name, to_choose)[::-1][:1] * 2")),
    ("the largest that fits",
     "Your choice is the cache with the most bytes among those that fit. More bytes do not "
     "always give a smaller loss. Choose the one with the smallest loss.",
     ("fits[i] = loss", "fits[i] = -held")),
    ("the largest loss",
     "Your choice has the largest loss of the caches that fit. Choose the one with the smallest "
     "loss.",
     (BEST, BEST.replace("min", "max"))),
    ("chosen on the others",
     "You choose the cache by the texts in `held_out`, which are only for testing the choice. "
     "Choose by the texts in `to_choose`.",
     (WHOLE_BYTES, WHOLE_BYTES.replace("to_choose", "held_out")),
     (CHOOSE, CHOOSE.replace("to_choose", "held_out"))),
    ("losses of the others",
     "You choose by the losses on `held_out`, but these texts are only for testing the choice. "
     "Choose by the losses on `to_choose`.",
     (CHOOSE, "loss, held = measure(name, held_out)[0], measure(name, to_choose)[1]")),
    ("bytes of the others",
     "You decide on `held_out` which caches fit. Decide this on `to_choose`. (The share that you "
     "return is still measured on `held_out`.)",
     (FITS, "if measure(name, held_out)[1] <= measure(names[0], held_out)[1] / 4:")),
    ("each text fits",
     "You leave out a cache that takes at most a quarter of the bytes over all texts, but more "
     "than a quarter on one text. Add up the bytes over all texts before you compare.",
     (FITS, "if all(4 * read(t, name)[1] <= read(t, names[0])[1] for t in to_choose):")),
    ("mean of the shares",
     "You take the mean of the texts' shares. Then the bytes of short texts count more. Add up the "
     "bytes over all texts before you compare.",
     (FITS, "if 4 * sum(read(t, name)[1] / read(t, names[0])[1] for t in to_choose) <= "
      "len(to_choose):")),
    ("some text fits",
     "Your choice takes at most a quarter of the bytes on one text, but more than a quarter over "
     "all texts. Add up the bytes over all texts before you compare.",
     (FITS, "if any(4 * read(t, name)[1] <= read(t, names[0])[1] for t in to_choose):")),
    ("chosen on all",
     "You choose the cache by all texts together, but those in `held_out` are only for testing the "
     "choice. Choose by the texts in `to_choose` alone.",
     (WHOLE_BYTES, WHOLE_BYTES.replace("to_choose", "to_choose + held_out")),
     (CHOOSE, CHOOSE.replace("to_choose", "to_choose + held_out"))),
    ("chosen by the texts' means",
     "Your share and your extra loss are right for your choice. But you choose by the average of "
     "the texts' mean losses. Then tokens of short texts count more. Choose by the mean "
     "cross-entropy over all predicted tokens of all texts in `to_choose`.",
     (CHOOSE, CHOOSE + "\n        loss = sum(measure(name, [t])[0] for t in to_choose)")),
    ("chosen on the last text",
     "Your share and your extra loss are right for your choice. But you choose by the loss on "
     "the last text alone. Choose by the mean cross-entropy over all predicted tokens of all "
     "texts in `to_choose`.",
     (CHOOSE, CHOOSE + "\n        loss = measure(name, to_choose[-1:])[0]")),
    ("chosen on the first text",
     "Your share and your extra loss are right for your choice. But you choose by the loss on "
     "the first text alone. Choose by the mean cross-entropy over all predicted tokens of all "
     "texts in `to_choose`.",
     (CHOOSE, CHOOSE + "\n        loss = measure(name, to_choose[:1])[0]")),
    ("chosen on the longest text",
     "Your share and your extra loss are right for your choice. But you choose by the loss on "
     "the longest text alone. Choose by the mean cross-entropy over all predicted tokens of all "
     "texts in `to_choose`.",
     (CHOOSE, CHOOSE + "\n        loss = measure(name, [max(to_choose, key=len)])[0]")),
    ("chosen by the worst text",
     "Your share and your extra loss are right for your choice. But you choose by the largest "
     "loss on a single text. Choose by the mean cross-entropy over all predicted tokens of all "
     "texts in `to_choose`.",
     (CHOOSE, CHOOSE + "\n        loss = max(measure(name, [t])[0] for t in to_choose)")),
    ("chosen by the best text",
     "Your share and your extra loss are right for your choice. But you choose by the smallest "
     "loss on a single text. Choose by the mean cross-entropy over all predicted tokens of all "
     "texts in `to_choose`.",
     (CHOOSE, CHOOSE + "\n        loss = min(measure(name, [t])[0] for t in to_choose)")),
    ("closest loss",
     "Your share and your extra loss are right for your choice. But you choose the cache whose "
     "loss is closest to that of the uncompressed cache. A loss below that of the uncompressed "
     "cache is better still. Choose the smallest loss.",
     ("fits[i] = loss", "fits[i] = abs(loss - measure(names[0], to_choose)[0])")),
    ("chosen by errors",
     "Your share and your extra loss are right for your choice. But you choose by the number of "
     "wrong predictions. Choose by the mean cross-entropy over all predicted tokens of all texts "
     "in `to_choose`.",
     (CHOOSE, CHOOSE + "\n        loss = sum((read(t, name)[0][:-1].argmax(dim=-1) != t[1:]).sum()"
      " for t in to_choose)")),
    ("chosen by the distance of the logits",
     "Your share and your extra loss are right for your choice. But you choose by the squared "
     "distance to the logits of the uncompressed cache. A small distance does not guarantee a "
     "small loss. Choose by the mean cross-entropy over all predicted tokens of all texts in "
     "`to_choose`.",
     (CHOOSE, CHOOSE + "\n        loss = sum((read(t, name)[0] - read(t, names[0])[0]).square()"
      ".sum() for t in to_choose)")),
    ("chosen by the divergence",
     "Your share and your extra loss are right for your choice. But you choose by the KL "
     "divergence from the uncompressed cache. A small divergence does not guarantee a small "
     "loss. Choose by the mean cross-entropy over all predicted tokens of all texts in "
     "`to_choose`.",
     (CHOOSE, CHOOSE + "\n        loss = sum(F.kl_div(read(t, name)[0].log_softmax(dim=-1), "
      "read(t, names[0])[0].softmax(dim=-1), reduction='sum') for t in to_choose)")),
    ("chosen by the last token",
     "Your share and your extra loss are right for your choice. But you choose by the loss of "
     "the last token of each text. Choose by the mean cross-entropy over all predicted tokens of "
     "all texts in `to_choose`.",
     (CHOOSE, CHOOSE + "\n        loss = sum(F.cross_entropy(read(t, name)[0][-2], t[-1]) for t in "
      "to_choose)")),
    ("bytes of the first text",
     "Your share and your extra loss are right for your choice. But you compare sizes on the "
     "first text only. Add up the bytes over all texts in `to_choose`, for both caches, before "
     "you compare.",
     (FITS, "if 4 * read(to_choose[0], name)[1] <= read(to_choose[0], names[0])[1]:")),
    ("bytes of the last text",
     "Your share and your extra loss are right for your choice. But you compare sizes on the last "
     "text only. Add up the bytes over all texts in `to_choose`, for both caches, before you "
     "compare.",
     (FITS, "if 4 * read(to_choose[-1], name)[1] <= read(to_choose[-1], names[0])[1]:")),
    ("the first that fits",
     "Your choice is the first cache that fits. Of all caches that fit, choose the one with the "
     "smallest loss.",
     (BEST, "best = min(fits)")),
    ("the last that fits",
     "Your choice is the last cache that fits. Of all caches that fit, choose the one with the "
     "smallest loss.",
     (BEST, "best = max(fits)")),
    ("last cache left out",
     "Your choice is never the last cache in `names`, even if this cache fits and has the "
     "smallest loss. Compare all caches that fit.",
     ("enumerate(names)", "enumerate(names[:-1])")),
    ("reported on what chose it",
     "Your choice is right, but your share and your extra loss were measured on `to_choose`. "
     "Measure both on `held_out`.",
     (OF_WHOLE, OF_WHOLE.replace("held_out", "to_choose")),
     (OF_BEST, OF_BEST.replace("held_out", "to_choose"))),
    ("loss of what chose it",
     "Your choice and your share are right, but your extra loss was measured on `to_choose`. "
     "Measure it on `held_out`.",
     (RETURN, "loss, loss_of_whole = (measure(names[i], to_choose)[0] for i in (best, 0))\n    "
      + RETURN)),
    ("share of what chose it",
     "Your choice and your extra loss are right, but your share was measured on `to_choose`. "
     "Measure it on `held_out`.",
     (RETURN, "held, whole = (measure(names[i], to_choose)[1] for i in (best, 0))\n    " + RETURN)),
    ("reported on all",
     "Your choice is right, but your share and your extra loss were measured on all texts "
     "together. Measure both on `held_out` alone.",
     (OF_WHOLE, OF_WHOLE.replace("held_out", "to_choose + held_out")),
     (OF_BEST, OF_BEST.replace("held_out", "to_choose + held_out"))),
    ("compared across texts",
     "For your extra loss, you compare your choice on `held_out` with the uncompressed cache on "
     "`to_choose`. Measure both losses on `held_out`.",
     (RETURN, "loss_of_whole = measure(names[0], to_choose)[0]\n    " + RETURN)),
    ("compared with other texts",
     "Your share and your extra loss compare your choice on `held_out` with the uncompressed "
     "cache on `to_choose`. Measure both caches on `held_out`.",
     (OF_WHOLE, OF_WHOLE.replace("held_out", "to_choose"))),
    ("whole bytes of other texts",
     "For your share, you divide the bytes of your choice on `held_out` by those of the "
     "uncompressed cache on `to_choose`. Measure both on `held_out`.",
     (RETURN, "whole = measure(names[0], to_choose)[1]\n    " + RETURN)),
    ("loss itself",
     "Your third number is the loss of your choice. Subtract the loss of the uncompressed cache.",
     ("loss - loss_of_whole", "loss")),
    ("negative extra loss",
     "Your extra loss has the wrong sign. Subtract the loss of the uncompressed cache from the "
     "loss of your choice.",
     ("loss - loss_of_whole", "loss_of_whole - loss")),
    ("absolute value",
     "Your extra loss is never negative. But the cache that you chose can have a smaller loss "
     "than the uncompressed one. Return the difference without taking its absolute value.",
     ("loss - loss_of_whole", "abs(loss - loss_of_whole)")),
    ("ratio of perplexities",
     "Your third number is the ratio of the perplexities. Return the difference of the losses, "
     "without exp.",
     ("loss - loss_of_whole", "torch.tensor(loss - loss_of_whole).exp()")),
    ("relative loss",
     "Your extra loss is divided by the loss of the uncompressed cache. Return the difference of "
     "the two losses.",
     ("loss - loss_of_whole", "loss / loss_of_whole - 1")),
    ("ratio of losses",
     "Your third number is the ratio of the two losses. Return their difference.",
     ("loss - loss_of_whole", "loss / loss_of_whole")),
    ("perplexities",
     "Your third number is a difference of perplexities. Return the difference of the losses, "
     "without exp.",
     ("loss - loss_of_whole", "torch.tensor(loss).exp() - torch.tensor(loss_of_whole).exp()")),
    ("bits of loss",
     "Your losses are in bits. Use the natural logarithm, as cross_entropy does.",
     ("loss - loss_of_whole", "(loss - loss_of_whole) / 0.6931472")),
    ("bytes in place of the share",
     "Your second number is a number of bytes. Divide it by the bytes of the uncompressed cache.",
     ("held / whole", "held")),
    ("share of both caches",
     "For your second number, you divide the bytes of your choice by the sum of its bytes and "
     "those of the uncompressed cache. Divide by the bytes of the uncompressed cache alone.",
     ("held / whole", "held / (held + whole)")),
    ("difference of the bytes",
     "Your second number is a difference of bytes. Divide the bytes of your choice by those of "
     "the uncompressed cache.",
     ("held / whole", "whole - held")),
    ("saved share",
     "Your second number is the share of the bytes that is saved. Return the share that your "
     "choice takes.",
     ("held / whole", "1 - held / whole")),
    ("how many times smaller",
     "Your second number is the bytes of the uncompressed cache divided by those of your choice. "
     "Return the inverse.",
     ("held / whole", "whole / held")),
    ("percent",
     "Your second number is in percent. Return a share from 0 to 1.",
     ("held / whole", "100 * held / whole")),
    ("not shifted",
     "For your loss, you compare each row of logits with the token that the model has just read. "
     "Row i predicts token i + 1. Compare logits[:-1] with tokens[1:].",
     (ENTROPY, 'F.cross_entropy(logits, tokens, reduction="sum").item()'),
     (COUNT, "count += len(tokens)")),
    ("shifted the other way",
     "For your loss, you compare each row of logits with the token one position before. Row i "
     "predicts token i + 1. Compare logits[:-1] with tokens[1:].",
     (ENTROPY, 'F.cross_entropy(logits[1:], tokens[:-1], reduction="sum").item()')),
    ("not shifted, mean of the texts' means",
     "For your loss, you compare each row of logits with the token that the model has just read. "
     "Row i predicts token i + 1. Compare logits[:-1] with tokens[1:].",
     (ENTROPY, "F.cross_entropy(logits, tokens).item()"), (COUNT, "count += 1")),
    ("mean of the texts' means",
     "Your loss is the average of the texts' mean losses, so tokens of short texts count more. Add "
     "up the losses of all predicted tokens of all texts, and divide the sum by the number of "
     "these tokens.",
     (ENTROPY, OWN), (COUNT, "count += 1")),
    ("summed loss",
     "Your losses are sums over the tokens. Divide each sum by the number of predicted tokens.",
     (ALL, "return loss, held")),
    ("sum of the texts' means",
     "You add up one mean loss per text. Add up the losses of all predicted tokens of all texts "
     "instead, and divide the sum by the number of these tokens.",
     (ENTROPY, OWN), (ALL, "return loss, held")),
    ("divided by all tokens",
     "Your losses are divided by the number of all tokens. The first token of a text is not "
     "predicted. Divide by the number of predicted tokens, L − 1 for a text of L tokens.",
     (COUNT, "count += len(tokens)")),
    ("last text alone",
     "Your bytes are those of the last text alone. Add up the bytes of all texts.",
     ("held += nbytes", "held = nbytes")),
    ("texts concatenated",
     "You read all texts as one long text. The texts are independent of each other. Read each text "
     "on its own, then add up losses and bytes.",
     ("in some:", "in [torch.cat(some)]:")),
    ("first text alone",
     "You use only the first text of each list. Measure on all texts.",
     ("in some:", "in some[:1]:")),
    ("softmax before the cross-entropy",
     "You get this loss if you apply a softmax before F.cross_entropy, which applies a softmax "
     "itself. Pass the logits.",
     (ENTROPY, 'F.cross_entropy(logits[:-1].softmax(-1), tokens[1:], reduction="sum").item()')),
    ("probability without a logarithm",
     "You use the probabilities of the next tokens themselves. Take the logarithm of each one "
     "first. The cross-entropy is minus the mean of these logarithms.",
     (ENTROPY, "-logits[:-1].softmax(-1).gather(1, tokens[1:, None]).sum().item()")),
    ("last token alone",
     "You use only the last token of each text. Average over all predicted tokens of all texts.",
     (ENTROPY, "F.cross_entropy(logits[-2:-1], tokens[-1:]).item()"), (COUNT, "count += 1")),
    ("errors counted",
     "Your loss is the share of wrong predictions. Use the mean cross-entropy.",
     (ENTROPY, "(logits[:-1].argmax(dim=-1) != tokens[1:]).sum().item()")),
    ("index missing",
     "Your result has two numbers. Return three numbers: the index, the share of the bytes and "
     "the extra loss.",
     ("return best, held", "return held")),
    ("mean of shares",
     "Your share is the mean of the shares on individual texts. Add up the bytes of all texts, "
     "then divide.",
     (RETURN, "shares = [read(t, names[best])[1] / read(t, names[0])[1] for t in held_out]\n    "
      + RETURN.replace("held / whole", "sum(shares) / len(shares)"))),
    ("index among those that fit",
     "Your share and your extra loss are right, but your index counts only the caches that fit. "
     "Return the index in `names`.",
     ("return best,", "return list(fits).index(best),")),
    ("index one too large",
     "Your index is one too large. Count from 0, as Python does.",
     ("return best,", "return best + 1,")),
    ("index one too small",
     "Your index is one too small. The uncompressed cache has index 0 in `names`, so count it "
     "too.",
     ("return best,", "return best - 1,")),
    ("loss before the share",
     "Your share and your extra loss are in the wrong order. Return the share first.",
     ("held / whole, loss - loss_of_whole", "loss - loss_of_whole, held / whole")),
    ("choice alone",
     "Your result is only the index. Return the index, the share of the bytes and the extra loss.",
     (RETURN, "return best")),
]  # fmt: skip

exercise = Exercise("12.8", choose_cache, inputs, MISTAKES, run=run, also_right=[by_lists])
