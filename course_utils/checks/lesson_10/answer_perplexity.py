"""10.4: how surprised a model is by the answers of texts, of which the first tokens are given."""

import torch
import torch.nn.functional as F

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals


def answer_perplexity(logits, tokens, starts):
    logs = logits[:, :-1].log_softmax(dim=-1)  # (B, L - 1, V)
    surprise = -logs.gather(2, tokens[:, 1:, None])[..., 0]  # (B, L - 1), of tokens 1, 2, ...
    asked = torch.arange(1, tokens.shape[1]) >= starts[:, None]  # (B, L - 1)
    return surprise[asked].mean().exp()


def by_loops(logits, tokens, starts):
    lost = []
    for b in range(len(tokens)):
        for place in range(starts[b].item(), tokens.shape[1]):
            share = torch.log_softmax(logits[b, place - 1], dim=-1)
            lost.append(-share[tokens[b, place]])
    return torch.exp(sum(lost) / len(lost))


def by_cross_entropy(logits, tokens, starts):
    targets = tokens.clone()
    for row, start in zip(targets, starts.tolist(), strict=True):
        row[:start] = -100
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten()).exp()


def inputs():
    normal, rng = normals(104), torch.Generator().manual_seed(104)

    def probe(B, L, V, *starts, dtype=torch.float64):
        tokens = torch.randint(V, (B, L), generator=rng)
        return normal(B, L, V, dtype=dtype), tokens, torch.tensor(starts)

    logits, tokens, starts = probe(2, 7, 5, 2, 5)
    unlikely, *of_one = probe(1, 15, 4, 1)
    unlikely[0, 8, of_one[0][0, 9]] -= 800  # softmax has a zero
    return [
        probe(1, 6, 4, 3),
        probe(3, 5, 7, 1, 2, 4),
        probe(2, 8, 3, 7, 2),  # an answer of one token
        (unlikely, *of_one),
        (logits.float() + 200, tokens, starts),  # e^200 is none of float32
        (logits.mT.contiguous().mT, tokens, starts),
        probe(4, 4, 6, 1, 1, 1, 1),
    ]


SHIFT = "logits[:, :-1].log_softmax(dim=-1)"
ASKED = "torch.arange(1, tokens.shape[1]) >= starts[:, None]"
END = "surprise[asked].mean().exp()"
ALONE = "all texts begin to count at one and the same place; each has its own start"
EACH = "torch.stack([row[which].mean() for row, which in zip(surprise, asked)])"
ALL = "the sum is divided by the number of all tokens; only the answers' count"
LATER = (SHIFT, SHIFT.replace(":-1", "1:")), ("tokens[:, 1:, None]", "tokens[:, :-1, None]")
MISTAKES = [
    ("not shifted", "each token is looked up in the distribution after itself; the one before it "
     "predicts it: logits[:, :-1] with tokens[:, 1:]", (SHIFT, SHIFT.replace(":-1", "1:"))),
    ("shifted the other way", "each token is looked up in a distribution after it; the one before "
     "it predicts it: logits[:, :-1] with tokens[:, 1:]",
     *LATER),
    ("shifted the other way, starts as well", "each token is looked up in a distribution after it; "
     "the one before it predicts it: logits[:, :-1] with tokens[:, 1:]",
     *LATER, (ASKED, "torch.arange(tokens.shape[1] - 1) >= starts[:, None]")),
    ("shifted twice", "the distributions stand two places before their tokens; they stand one "
     "before", (SHIFT, "logits.roll(1, 1)[:, :-1].log_softmax(dim=-1)")),
    ("whole text", "the given tokens are counted as well; only those from `starts` on are asked",
     (ASKED, ASKED.replace("starts[:, None]", "0 * starts[:, None]"))),
    ("first of the answer left out", "the answer's first token is left out: it is predicted as "
     "well, from the last of what is given", (">=", ">")),
    ("one too early", "the last given token is counted as well: the answer begins at `starts`",
     (ASKED, ASKED.replace("starts[:, None]", "starts[:, None] - 1"))),
    ("given part only", "that is the given part; the answer begins at `starts`", (">=", "<")),
    ("longest given part for all", ALONE,
     (ASKED, ASKED.replace("starts[:, None]", "starts.max() + 0 * starts[:, None]"))),
    ("shortest given part for all", ALONE,
     (ASKED, ASKED.replace("starts[:, None]", "starts.min() + 0 * starts[:, None]"))),
    ("first text's given part for all", ALONE,
     (ASKED, ASKED.replace("starts[:, None]", "starts[0] + 0 * starts[:, None]"))),
    ("token 0 left out", "tokens of number 0 are left out of the mean, as if they were filling; "
     "here 0 is a token like any other", (ASKED, f"({ASKED}) & (tokens[:, 1:] != 0)")),
    ("mean of means", "the mean is taken in each text first, so that tokens of short answers "
     "count more; all tokens count alike", (END, f"{EACH}.mean().exp()")),
    ("mean of perplexities", "that is the mean of the texts' perplexities; the mean is taken "
     "before the exponential, over all tokens", (END, f"{EACH}.exp().mean()")),
    ("exponential before the mean", "the exponential is taken of each token's surprise; take the "
     "mean first", (END, "surprise[asked].exp().mean()")),
    ("a number for each text", "that is a perplexity for each text; one is asked, of the mean over "
     "all answers' tokens", (END, f"{EACH}.exp()")),
    ("mean of probabilities", "that is one over the mean of the probabilities; the mean is taken "
     "of the surprises, their logarithms", (END, "1 / (-surprise[asked]).exp().mean()")),
    ("the loss", "that is the loss; the perplexity is e to the power of it",
     (END, "surprise[asked].mean()")),
    ("power of two", "two to the power of a loss in nats: with ln belongs e",
     (END, "surprise[asked].mean().exp2()")),
    ("sum", "surprises are summed; take their mean", (END, "surprise[asked].sum().exp()")),
    ("below one", "that is one over the perplexity: the surprise is minus the logarithm",
     ("-logs", "logs")),
    ("softmax, then log", "right, but where a probability is too small for its format its "
     "logarithm is −∞: take log_softmax", ("log_softmax(dim=-1)", "softmax(dim=-1).log()")),
    ("no logarithm", "those are probabilities: a surprise is minus the logarithm of one",
     ("log_softmax", "softmax")),
    ("over the places", "softmax runs over the places of the text; it runs over the vocabulary, "
     "the last dimension", ("dim=-1)", "dim=1)")),
    ("softmax twice", "softmax is taken twice: log_softmax and cross_entropy take logits as they "
     "are", ("logits[:, :-1]", "logits[:, :-1].softmax(dim=-1)")),
    ("mean over all tokens, the first as well", ALL,
     (END, "((surprise * asked).sum() / tokens.numel()).exp()")),
    ("mean over all places", ALL, (END, "(surprise * asked).mean().exp()")),
]  # fmt: skip

exercise = Exercise(
    "10.4", answer_perplexity, inputs, MISTAKES, also_right=[by_loops, by_cross_entropy]
)
