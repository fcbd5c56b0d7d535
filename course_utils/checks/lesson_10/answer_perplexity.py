"""10.4: the perplexity of answers, whose questions are given."""

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
    losses = []
    for b in range(len(tokens)):
        for position in range(starts[b].item(), tokens.shape[1]):
            logs = torch.log_softmax(logits[b, position - 1], dim=-1)
            losses.append(-logs[tokens[b, position]])
    return torch.exp(sum(losses) / len(losses))


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
        (logits.float() + 200, tokens, starts),  # e^200 overflows in float32
        (logits.mT.contiguous().mT, tokens, starts),
        probe(4, 4, 6, 1, 1, 1, 1),
    ]


SHIFT = "logits[:, :-1].log_softmax(dim=-1)"
ASKED = "torch.arange(1, tokens.shape[1]) >= starts[:, None]"
END = "surprise[asked].mean().exp()"
ALONE = (
    "In your result, all answers begin at the same position. Each text has its own start. Compare "
    "the positions with `starts` row by row."
)
EACH = "torch.stack([row[which].mean() for row, which in zip(surprise, asked)])"
ALL = (
    "You divide the sum of the losses by a number of tokens that includes the questions. Divide by "
    "the number of tokens in the answers."
)
LATER = (SHIFT, SHIFT.replace(":-1", "1:")), ("tokens[:, 1:, None]", "tokens[:, :-1, None]")
MISTAKES = [
    ("not shifted", "You look up token i in row i of the logits. But row i is the prediction after "
     "token i. Row i − 1 predicts token i, so use logits[:, :-1] with tokens[:, 1:].",
     (SHIFT, SHIFT.replace(":-1", "1:"))),
    ("shifted the other way", "You look up token i in row i + 1 of the logits. Row i − 1 predicts "
     "token i, so use logits[:, :-1] with tokens[:, 1:].", *LATER),
    ("shifted the other way, starts as well", "You look up token i in row i + 1 of the logits. Row "
     "i − 1 predicts token i, so use logits[:, :-1] with tokens[:, 1:]. Then compare `starts` with "
     "the positions 1, 2, …, because token 0 is left out.",
     *LATER, (ASKED, "torch.arange(tokens.shape[1] - 1) >= starts[:, None]")),
    ("shifted twice", "You look up token i in row i − 2 of the logits. Row i − 1 predicts token i, "
     "so shift by one row only.",
     (SHIFT, "logits.roll(1, 1)[:, :-1].log_softmax(dim=-1)")),
    ("whole text", "You also count the questions. Count only the tokens from position `starts[b]` "
     "on.",
     (ASKED, ASKED.replace("starts[:, None]", "0 * starts[:, None]"))),
    ("first of the answer left out", "You leave out the first token of each answer. The last row "
     "of the question predicts this token. Count it.", (">=", ">")),
    ("one too early", "You also count the last token of each question. Begin at position "
     "`starts[b]`.",
     (ASKED, ASKED.replace("starts[:, None]", "starts[:, None] - 1"))),
    ("question only", "You count the questions, not the answers. Count the tokens from position "
     "`starts[b]` on.", (">=", "<")),
    ("longest question for all", ALONE,
     (ASKED, ASKED.replace("starts[:, None]", "starts.max() + 0 * starts[:, None]"))),
    ("shortest question for all", ALONE,
     (ASKED, ASKED.replace("starts[:, None]", "starts.min() + 0 * starts[:, None]"))),
    ("first text's question for all", ALONE,
     (ASKED, ASKED.replace("starts[:, None]", "starts[0] + 0 * starts[:, None]"))),
    ("token 0 left out", "You leave out tokens whose id is 0, as if they were padding. Here, 0 is "
     "a token like any other. Count it.",
     (ASKED, f"({ASKED}) & (tokens[:, 1:] != 0)")),
    ("mean of means", "You take the mean loss of each answer, and then the mean of these means. "
     "This way, a token of a short answer counts more. Take one mean over the tokens of all "
     "answers.", (END, f"{EACH}.mean().exp()")),
    ("mean of perplexities", "Your result is the mean of the perplexities of the texts. First take "
     "the mean loss over the tokens of all answers, and then the exponential.",
     (END, f"{EACH}.exp().mean()")),
    ("exponential before the mean", "You take the mean of the exponentials. The perplexity is the "
     "exponential of the mean, so take the mean first.", (END, "surprise[asked].exp().mean()")),
    ("a number for each text", "You return one perplexity for each text. Return a single number, "
     "from the mean loss over the tokens of all answers.", (END, f"{EACH}.exp()")),
    ("mean of probabilities", "Your result is 1 divided by the mean probability. The mean must be "
     "over the losses, −ln of the probabilities. Take the logarithms first, then the mean, then "
     "the exponential.",
     (END, "1 / (-surprise[asked]).exp().mean()")),
    ("the loss", "Your result is the mean loss. The perplexity is its exponential. Add .exp().",
     (END, "surprise[asked].mean()")),
    ("power of two", "Your result is 2 to the power of the mean loss. The loss uses ln, whose base "
     "is e. Use exp.", (END, "surprise[asked].mean().exp2()")),
    ("sum", "Your result is the exponential of the sum of the losses, which grows with the "
     "number of tokens. Use the mean of the losses.",
     (END, "surprise[asked].sum().exp()")),
    ("below one", "Your result is 1 divided by the perplexity. The loss is *minus* the logarithm "
     "of the probability. Change the sign.", ("-logs", "logs")),
    ("softmax, then log", "Your result is right, except where a probability underflows to 0. Its "
     "logarithm is −∞. Use log_softmax, which gives the logarithm directly.",
     ("log_softmax(dim=-1)", "softmax(dim=-1).log()")),
    *((f"softmax plus {eps}, then log", "Your result is right, except where a probability is very "
       f"small. Then the {eps} that you add makes the loss too small. Use log_softmax, which needs "
       "no added number.", ("log_softmax(dim=-1)", f"softmax(dim=-1).add({eps}).log()"))
      for eps in ("1e-8", "1e-9", "1e-10", "1e-12")),
    ("no logarithm", "You average the negative probabilities. A loss is −ln of a probability. Take "
     "the logarithm.", ("log_softmax", "softmax")),
    ("over the positions", "Your softmax runs over the positions of the text. It must run over the "
     "vocabulary. Use dim=-1.", ("dim=-1)", "dim=1)")),
    ("softmax twice", "Your result is what you get if softmax is applied twice. log_softmax and "
     "cross_entropy take logits. Give them the logits as they are.",
     ("logits[:, :-1]", "logits[:, :-1].softmax(dim=-1)")),
    ("mean over all tokens, the first as well", ALL,
     (END, "((surprise * asked).sum() / tokens.numel()).exp()")),
    ("mean over all positions", ALL, (END, "(surprise * asked).mean().exp()")),
    ("reshaped instead of transposed",
     "Your logits mix positions and vocabulary. If you reshape (B, L − 1, V) to (B, V, L − 1) for "
     "cross_entropy, the entries stay in the same order in memory. Use .transpose(1, 2).",
     (SHIFT, "logits[:, :-1].reshape(len(tokens), logits.shape[-1], -1).mT.log_softmax(dim=-1)")),
    ("reshaped, softmax over the positions",
     "Your logits mix positions and vocabulary. If you reshape (B, L − 1, V) to (B, V, L − 1), the "
     "entries stay in the same order in memory. Use .transpose(1, 2), or leave the vocabulary in "
     "the last dimension.",
     (SHIFT, "logits[:, :-1].reshape(len(tokens), logits.shape[-1], -1).log_softmax(dim=-1).mT")),
    ("last token left out", "You leave out the last token of each text. Row L − 2 of the logits "
     "predicts this token. Count it.",
     (ASKED, f"({ASKED}) & (torch.arange(1, tokens.shape[1]) < tokens.shape[1] - 1)")),
    ("first tokens only", "You count only the first token of each answer. Count all tokens from "
     "position `starts[b]` on.", (ASKED, ASKED.replace(">=", "=="))),
    ("last tokens only", "You count only the last token of each answer. Count all tokens from "
     "position `starts[b]` on.",
     (ASKED, "torch.arange(1, tokens.shape[1]) >= 0 * starts[:, None] + tokens.shape[1] - 1")),
    ("divided by texts", "You divide the sum of the losses by the number of texts. Divide by the "
     "number of tokens in the answers.", (END, "(surprise[asked].sum() / len(tokens)).exp()")),
    ("median", "Your result is the exponential of the median loss. Use the mean loss.",
     (END, "surprise[asked].median().exp()")),
    ("entropy", "Your result is the exponential of the mean entropy of the predictions. It does "
     "not depend on the answers. Take the loss of the tokens that actually come next.",
     ("surprise = -logs.gather(2, tokens[:, 1:, None])[..., 0]",
      "surprise = -(logs * logs.exp()).sum(dim=-1)")),
    ("bits, then exp", "You divide the loss by ln 2, which converts it to bits, and then take "
     "exp. Take exp of the loss in nats, which is what ln gives. Do not divide.",
     (END, "(surprise[asked].mean() / torch.tensor(2.0).log()).exp()")),
    *((f"loss at most {limit}", "Your result is right, except where a loss is very large. You "
       f"clip the losses at {limit}. Use each loss as it is.",
       (END, f"surprise.clamp(max={limit})[asked].mean().exp()"))
      for limit in (10, 20, 50, 100)),
    *((f"labels smoothed by {amount}", "Your losses also contain the −ln of the other tokens' "
       "probabilities, as with label smoothing. Use only the probability of the token that "
       "actually comes next.",
       ("surprise = -logs.gather(2, tokens[:, 1:, None])[..., 0]",
        f"surprise = -(1 - {amount}) * logs.gather(2, tokens[:, 1:, None])[..., 0] - {amount} * "
        "logs.mean(dim=-1)"))
      for amount in ("0.01", "0.1")),
    ("starts as lengths", "You count the first `starts[b]` losses of each text. The answer begins "
     "at position `starts[b]` and goes on to the end. Count the tokens from there on.",
     (ASKED, "torch.arange(tokens.shape[1] - 1) < starts[:, None]")),
]  # fmt: skip

exercise = Exercise(
    "10.4", answer_perplexity, inputs, MISTAKES, also_right=[by_loops, by_cross_entropy]
)
