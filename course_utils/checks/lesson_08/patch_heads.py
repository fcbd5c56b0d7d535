"""8.8: activation patching: what each head restores when its clean output is put back."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_08._patching import RepeatModel


def patch_heads(model, clean, corrupted, right, wrong):
    rows = torch.arange(len(clean))

    def difference(logits):  # (B, V) -> (), the mean over the prompts
        return (logits[rows, right] - logits[rows, wrong]).mean()

    clean_logits, heads = model(clean)  # (B, V), (layers, B, H, L, d_v)
    corrupted_logits, own = model(corrupted)
    low, high = difference(corrupted_logits), difference(clean_logits)
    restored = torch.zeros(heads.shape[0], heads.shape[2])  # (layers, H)
    for layer in range(heads.shape[0]):
        for head in range(heads.shape[2]):
            patches = {(layer, head): heads[layer, :, head]}  # (B, L, d_v)
            logits, _ = model(corrupted, patches)
            restored[layer, head] = (difference(logits) - low) / (high - low)
    return restored


def by_gather(model, clean, corrupted, right, wrong):
    def score(logits):
        picked = logits.gather(1, torch.stack([right, wrong], dim=1))  # (B, 2)
        return (picked[:, 0] - picked[:, 1]).mean().item()

    outputs = model(clean)[1].movedim(2, 1)  # (layers, H, B, L, d_v)
    high, low = score(model(clean)[0]), score(model(corrupted)[0])
    rows = []
    for i, layer in enumerate(outputs):
        rows.append([score(model(corrupted, {(i, h): out})[0]) for h, out in enumerate(layer)])
    return (torch.tensor(rows) - low) / (high - low)


def by_log_probabilities(model, clean, corrupted, right, wrong):
    def score(logits):
        logs = logits.log_softmax(dim=-1)
        return sum(row[r] - row[w] for row, r, w in zip(logs, right, wrong, strict=True))

    (clean_logits, heads), low = model(clean), score(model(corrupted)[0])
    whole = score(clean_logits) - low
    shares = [
        (score(model(corrupted, {(i, h): heads[i, :, h]})[0]) - low) / whole
        for i in range(len(heads))
        for h in range(heads.shape[2])
    ]
    return torch.stack(shares).view(len(heads), -1)


def inputs():
    """Return models that are not trained, which are as good to patch, and prompts in pairs."""
    cases = [case(82, 2, 4, 5, 7), case(81, 3, 2, 4, 9), case(83, 1, 3, 1, 4), case(80, 2, 1, 3, 6)]
    model, clean, corrupted, *_ = case(84, 2, 3, 6, 8)  # where the model's answers are right
    right, wrong = (model(tokens)[0].argmax(dim=-1) for tokens in (clean, corrupted))
    return [*cases, (model, clean, corrupted, right, wrong)]


def case(seed, layers, heads, B, L, V=11):
    normal = normals(seed)
    model = RepeatModel(V, d_model=12, num_layers=layers, num_heads=heads).requires_grad_(False)
    for parameter in model.parameters():
        parameter.copy_(0.4 * normal(*parameter.shape, dtype=torch.float32))
    tokens = normal(B, V).argsort(dim=-1)  # (B, V), each token once
    clean = tokens[:, torch.arange(L) % 6]
    corrupted = tokens[:, torch.tensor([0, 7, 2, 3, 1, 5])[torch.arange(L) % 6]]
    return model, clean, corrupted, tokens[:, 8], tokens[:, 9]


RESTORED = "restored[layer, head] = (difference(logits) - low) / (high - low)"
DIFFERENCE = "(logits[rows, right] - logits[rows, wrong]).mean()"
PATCHED = "heads[layer, :, head]}"
ALL_HEADS = "{(layer, each): heads[layer, :, each] for each in range(heads.shape[2])}"

MISTAKES = [
    ("clean run patched",
     "You patch corrupted outputs into the run on the clean prompt, and return what is left. Patch "
     "clean outputs into the run on the corrupted prompt.",
     (PATCHED, "own[layer, :, head]}"), ("model(corrupted, patches)", "model(clean, patches)")),
    ("what the clean run loses",
     "You patch corrupted outputs into the run on the clean prompt, and return what is lost. Patch "
     "clean outputs into the run on the corrupted prompt.",
     (PATCHED, "own[layer, :, head]}"), ("model(corrupted, patches)", "model(clean, patches)"),
     ("difference(logits) - low)", "high - difference(logits))")),
    ("nothing patched",
     "Your result is 0 for every head, as if the corrupted prompt's own head outputs were "
     "patched in. Patch in the head outputs of the clean prompt.",
     (PATCHED, "own[layer, :, head]}")),
    ("own outputs into the clean prompt",
     "Your result is 1 for every head, as if nothing in the clean run were replaced. Run the "
     "model on the corrupted prompts, and patch in clean outputs.",
     ("model(corrupted, patches)", "model(clean, patches)")),
    ("accuracy",
     "Your result is the share of right answers. A patch can move the logits without changing "
     "the answer, so use the logit difference.",
     (RESTORED, "restored[layer, head] = (logits.argmax(dim=-1) == right).double().mean()")),
    ("accuracy restored",
     "You compare the shares of right answers. A patch can move the logits without changing the "
     "answer, so use the logit difference.",
     (DIFFERENCE, "(logits.argmax(dim=-1) == right).double().mean()")),
    ("every prompt with every token",
     "You average over all pairs of a prompt and a right or wrong token. If you write `logits[:, "
     "right]`, you get a (B, B) matrix. Use `logits[torch.arange(B), right]`.",
     (DIFFERENCE, "(logits[:, right] - logits[:, wrong]).mean()")),
    ("patched over clean",
     "Your result is patched / clean. Subtract the corrupted logit difference from both of them "
     "before you divide.",
     ("(difference(logits) - low) / (high - low)", "difference(logits) / high")),
    ("corrupted sign",
     "Your logit difference of the corrupted prompt has the wrong sign. Take the right token "
     "minus the wrong one in every run.",
     ("low, high = difference(corrupted_logits)", "low, high = -difference(corrupted_logits)")),
    ("first clean prompt for all",
     "You patch the output for the first clean prompt into all corrupted prompts. Each corrupted "
     "prompt must get the output of its own clean prompt.",
     (PATCHED, "heads[layer, :1, head].expand_as(own[layer, :, head])}")),
    ("difference patched",
     "You patch in the clean output minus the corrupted one. A patch *replaces* the output, so "
     "patch in the clean output itself.",
     (PATCHED, "heads[layer, :, head] - own[layer, :, head]}")),
    ("not normalized",
     "Your result is the logit difference itself. Subtract the logit difference of the "
     "corrupted prompt, and divide by the gap between clean and corrupted.",
     ("(difference(logits) - low) / (high - low)", "difference(logits)")),
    ("not divided",
     "Your result is the change of the logit difference. Divide it by the gap between clean and "
     "corrupted, so that 1 means fully restored.",
     (" / (high - low)", "")),
    ("divided by the clean difference",
     "Your changes are divided by the clean logit difference. Divide them by the gap between "
     "the clean and the corrupted logit difference, so that 1 means fully restored.",
     ("(high - low)", "high")),
    ("corrupted not subtracted",
     "You divide the whole patched logit difference by clean − corrupted. First subtract the "
     "corrupted logit difference, so that the share is 0 if the patch changes nothing.",
     ("difference(logits) - low", "difference(logits)")),
    ("still missing",
     "Your result is the share that is still missing. Return the share that is restored.",
     ("difference(logits) - low", "high - difference(logits)")),
    ("sign flipped",
     "Your result has the wrong sign. If the patch moves the logit difference toward the clean "
     "one, the share must be positive.",
     ("difference(logits) - low", "low - difference(logits)")),
    ("in percent",
     "Your result is in percent. Return shares, where 1 means fully restored.",
     (RESTORED, "restored[layer, head] = 100 * (difference(logits) - low) / (high - low)")),
    ("right logit only",
     "You use only the logit of the right token. Subtract the logit of the wrong token.",
     (DIFFERENCE, "logits[rows, right].mean()")),
    ("wrong logit only",
     "You use only the logit of the wrong token. Use the logit of the right token minus that of "
     "the wrong one.",
     (DIFFERENCE, "logits[rows, wrong].mean()")),
    ("probabilities",
     "You compare probabilities. Use the logits, as the model returns them.",
     (DIFFERENCE,
      "(logits.softmax(dim=-1)[rows, right] - logits.softmax(dim=-1)[rows, wrong]).mean()")),
    ("right probability only",
     "You use only the probability of the right token. Use the logit of the right token minus that "
     "of the wrong one.",
     (DIFFERENCE, "logits.softmax(dim=-1)[rows, right].mean()")),
    ("right log-probability only",
     "You use only the log-probability of the right token. Use the logit of the right token minus "
     "that of the wrong one.",
     (DIFFERENCE, "logits.log_softmax(dim=-1)[rows, right].mean()")),
    ("mean of shares",
     "Your result is the mean of each prompt's share, which depends most on prompts where clean "
     "and corrupted differ little. Average the logit differences over the prompts before you "
     "divide.",
     (DIFFERENCE, "logits[rows, right] - logits[rows, wrong]"),
     (RESTORED, "restored[layer, head] = ((difference(logits) - low) / (high - low)).mean()")),
    ("first prompt only",
     "You use only the first prompt. Average the logit difference over all prompts.",
     (DIFFERENCE, "(logits[rows, right] - logits[rows, wrong])[0]")),
    ("last position only",
     "You patch a head only at the last position. Later layers read all positions, so patch the "
     "head's output at all positions.",
     (PATCHED, "torch.cat([own[layer, :, head, :-1], heads[layer, :, head, -1:]], dim=1)}")),
    ("last position not patched",
     "You do not patch the last position. Patch a head's output at all positions.",
     (PATCHED, "torch.cat([heads[layer, :, head, :-1], own[layer, :, head, -1:]], dim=1)}")),
    ("whole layer",
     "You patch all heads of a layer together. Patch one head at a time.",
     ("{(layer, head): heads[layer, :, head]}", ALL_HEADS)),
    ("patches add up",
     "You keep earlier patches, so more and more heads are patched. Use a new dict for each head.",
     ("{(layer, head): heads[layer, :, head]}",
      "{(a, b): heads[a, :, b] for a in range(layer + 1) for b in range(heads.shape[2]) "
      "if (a, b) <= (layer, head)}")),
    ("patches add up within a layer",
     "You keep the patches of earlier heads of the layer. Use a new dict for each head.",
     ("{(layer, head): heads[layer, :, head]}",
      "{(layer, b): heads[layer, :, b] for b in range(head + 1)}")),
    ("all but one",
     "You patch all heads but one. Patch one head at a time.",
     ("{(layer, head): heads[layer, :, head]}",
      "{(a, b): heads[a, :, b] for a in range(len(heads)) for b in range(heads.shape[2]) "
      "if (a, b) != (layer, head)}")),
    ("zero ablation",
     "You set head outputs to zero, which is ablation. Patch in the outputs of the clean prompt.",
     (PATCHED, "0 * own[layer, :, head]}")),
    ("mean of the clean outputs",
     "You patch in the mean output over the clean prompts. Each corrupted prompt must get the "
     "output of its own clean prompt.",
     (PATCHED, "heads[layer, :, head].mean(dim=0, keepdim=True).expand_as(own[layer, :, head])}")),
    ("zeroed in the clean prompt",
     "You set head outputs to zero in the run on the clean prompt, which is ablation. Patch clean "
     "outputs into the run on the corrupted prompt.",
     (PATCHED, "0 * own[layer, :, head]}"), ("model(corrupted, patches)", "model(clean, patches)")),
    ("heads in reverse order",
     "Your heads are in reverse order. Entry (layer, head) must be the share of that head.",
     ("return restored", "return restored.flip(1)")),
    ("transposed",
     "Your result has shape (H, layers). Return shape (layers, H): rows are layers, and columns "
     "are heads.",
     ("return restored", "return restored.T")),
    ("size only",
     "Your shares are never negative. A head can also move the logit difference the wrong way, so "
     "keep the sign.",
     ("return restored", "return restored.abs()")),
    ("clamped",
     "You clamp the shares to the range from 0 to 1. A head can move the logit difference the "
     "wrong way or too far, so return the shares as they are.",
     ("return restored", "return restored.clamp(0, 1)")),
    ("shares of the sum",
     "Your shares are divided by their sum. Heads work together, so the shares need not sum to 1. "
     "Return them as they are.",
     ("return restored", "return restored / restored.sum()")),
    ("size of each difference",
     "You average the absolute logit differences. A wrong answer must lower the mean, so average "
     "the differences with their signs.",
     (DIFFERENCE, "(logits[rows, right] - logits[rows, wrong]).abs().mean()")),
    ("only where the prompts differ",
     "You patch only positions where the two prompts differ. Later positions also attend to these, "
     "so the head's output changes there too. Patch the output at all positions.",
     (PATCHED, "torch.where((clean != corrupted)[..., None], heads[layer, :, head], "
               "own[layer, :, head])}")),
    ("only where the prompts are equal",
     "You patch only positions where the two prompts have the same token. Patch the head's output "
     "at all positions.",
     (PATCHED, "torch.where((clean == corrupted)[..., None], heads[layer, :, head], "
               "own[layer, :, head])}")),
    ("reshaped instead of transposed",
     "Your patches mix the outputs of different heads and prompts. If you reshape (B, H, L, d_v) "
     "to (H, B, L, d_v), the entries stay in the same order in memory. Index the heads instead, as "
     "in heads[layer, :, head].",
     (PATCHED, "heads[layer].reshape(heads.shape[2], heads.shape[1], *heads.shape[3:])[head]}")),
    ("head of all layers",
     "You patch head `head` in all layers together. Patch one head of one layer at a time.",
     ("{(layer, head): heads[layer, :, head]}",
      "{(each, head): heads[each, :, head] for each in range(len(heads))}")),
    ("always layer 0",
     "You patch in outputs of layer 0, whatever the layer is. Each head must get its own clean "
     "output, heads[layer, :, head].",
     (PATCHED, "heads[0, :, head]}")),
    ("always head 0",
     "You patch in outputs of head 0, whatever the head is. Each head must get its own clean "
     "output, heads[layer, :, head].",
     (PATCHED, "heads[layer, :, 0]}")),
    ("mean over positions",
     "At every position, you patch in the same vector, the mean of the clean output over all "
     "positions. Patch in the clean output of each position.",
     (PATCHED, "heads[layer, :, head].mean(dim=1, keepdim=True).expand_as(own[layer, :, head])}")),
    ("clean and corrupted added",
     "You patch in the sum of the clean and the corrupted output. A patch *replaces* the output, "
     "so patch in the clean output itself.",
     (PATCHED, "heads[layer, :, head] + own[layer, :, head]}")),
    ("clean and corrupted averaged",
     "You patch in the mean of the clean and the corrupted output. A patch *replaces* the output, "
     "so patch in the clean output itself.",
     (PATCHED, "(heads[layer, :, head] + own[layer, :, head]) / 2}")),
    ("median",
     "You take the median of the logit differences over the prompts. Take their mean.",
     (DIFFERENCE, "(logits[rows, right] - logits[rows, wrong]).median()")),
    ("head 0 left out",
     "Your result has no entries for head 0. Heads are counted from 0, so begin with head 0.",
     ("return restored", "return restored[:, 1:]")),
    ("layer 0 left out",
     "Your result has no entries for layer 0. Layers are counted from 0, so begin with layer 0.",
     ("return restored", "return restored[1:]")),
    ("clean sign",
     "Your logit difference of the clean prompt has the wrong sign. Take the right token minus the "
     "wrong one in every run.",
     ("low, high = difference(corrupted_logits), difference(clean_logits)",
      "low, high = difference(corrupted_logits), -difference(clean_logits)")),
    ("head before layer",
     "Your keys are (head, layer). Layers come first, so use (layer, head).",
     ("{(layer, head)", "{(head, layer)")),
    ("prompt taken for the head",
     "Your patch is the output for one prompt in all heads. Heads are dimension 2, so use "
     "heads[layer, :, head].",
     (PATCHED, "heads[layer, head]}")),
]  # fmt: skip

exercise = Exercise(
    "8.8", patch_heads, inputs, MISTAKES, names="layers H",
    also_right=[by_gather, by_log_probabilities],
)  # fmt: skip
