"""13.7: the delta rule over packed texts, with a state that starts anew at each text."""

import torch

from course_utils.checks.exercise import Exercise
from course_utils.checks.inputs import normals
from course_utils.checks.lesson_13._linear import head_inputs


def packed_delta_rule(q, k, v, beta, text):
    B, H, L, d_k = q.shape
    S = q.new_zeros(B, H, d_k, v.shape[-1])
    outs = []
    for t in range(L):
        q_t, k_t, v_t = (x[:, :, t, None, :] for x in (q, k, v))  # (B, H, 1, d)
        new = text[:, t] != text[:, t - 1] if t else torch.ones_like(text[:, 0], dtype=torch.bool)
        S = S.masked_fill(new[:, None, None, None], 0)
        u_t = beta[:, :, t, None, None] * (v_t - k_t @ S)  # (B, H, 1, d_v)
        S = S + k_t.mT @ u_t  # (B, H, d_k, d_v)
        outs.append(q_t @ S)
    return torch.cat(outs, dim=2)  # (B, H, L, d_v)


def text_by_text(q, k, v, beta, text):
    rows = []
    for b in range(q.shape[0]):
        parts, start = [], 0
        for length in text[b].unique_consecutive(return_counts=True)[1].tolist():
            now = slice(start, start + length)
            S = q.new_zeros(q.shape[1], q.shape[-1], v.shape[-1])
            for t in range(now.start, now.stop):
                error = v[b, :, t] - torch.einsum("hk,hkv->hv", k[b, :, t], S)
                S = S + torch.einsum("h,hk,hv->hkv", beta[b, :, t], k[b, :, t], error)
                parts.append(torch.einsum("hk,hkv->hv", q[b, :, t], S))
            start += length
        rows.append(torch.stack(parts, dim=1))
    return torch.stack(rows)


def by_a_triangular_system(q, k, v, beta, text):
    same = (text[:, :, None] == text[:, None, :])[:, None]  # (B, 1, L, L)
    A = ((k * beta[..., None]) @ k.mT * same).tril(-1)
    U = torch.linalg.solve_triangular(A, v * beta[..., None], upper=False, unitriangular=True)
    return (q @ k.mT * same).tril() @ U


def inputs():
    normal = normals(137)

    def case(*texts, H, d_k, d_v, dtype=torch.float64):
        text = torch.tensor(texts)
        given = head_inputs(normal, len(texts), H, L=text.shape[1], d_k=d_k, d_v=d_v, dtype=dtype)
        q, k, v, _, beta = given
        return q, k, v, beta, text

    return [
        case([0, 0, 0, 1, 1, 1], H=2, d_k=4, d_v=3),
        case([0, 0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 1, 1, 2], H=3, d_k=3, d_v=4),
        case([3, 3, 259, 259, 259], [259, 259, 259, 3, 3], [4, 4, 4, 4, 4], H=2, d_k=3, d_v=2),
        case([0, 1, 2, 2], [0, 0, 0, 1], H=1, d_k=4, d_v=3, dtype=torch.float32),
        case([7, 7, 7, 7], H=2, d_k=3, d_v=5),
        case([4, 4, 0, 0, 3, 3], H=2, d_k=3, d_v=4),  # a later 0, and a number below the largest
        case([1], H=1, d_k=3, d_v=2),
    ]


NEW = "text[:, t] != text[:, t - 1] if t else torch.ones_like(text[:, 0], dtype=torch.bool)"
FILL = "        S = S.masked_fill(new[:, None, None, None], 0)\n"
WRITE = "        S = S + k_t.mT @ u_t  # (B, H, d_k, d_v)\n"
MISTAKES = [
    ("state never reset",
     "Your state is carried from one text to the next, as in the code above. Set it to 0 at the "
     "first token of each text, before that token writes.",
     (FILL, "")),
    ("reset after the write",
     "The first token of each text leaves no write in your state. You get this result if the "
     "reset comes after the write. Reset first, and then write.",
     (FILL, ""),
     (WRITE, WRITE + FILL)),
    ("reset after the read",
     "The first token of each text still reads the old text in your result, and then its write is "
     "lost. Reset the state first, then write, then read.",
     (FILL, ""),
     ("        outs.append(q_t @ S)\n", "        outs.append(q_t @ S)\n" + FILL)),
    ("reset a token late",
     "Your reset comes one token late, at the second token of each text. Reset where `text[:, t] "
     "!= text[:, t - 1]`, before token t writes.",
     (NEW, "text[:, t - 1] != text[:, max(t - 2, 0)] if t else text[:, 0] < 0")),
    ("reset a token early",
     "Your reset comes one token early, at the last token of each text. Compare token t with the "
     "token *before* it.",
     (NEW, "text[:, t] != text[:, min(t + 1, L - 1)]")),
    ("all rows reset together",
     "Your state is reset in all rows of the batch when a text begins in one of them. Each row "
     "has its own texts, so reset only the rows where a text begins.",
     (NEW, "(text[:, t] != text[:, t - 1]).any().expand(B) if t else text[:, 0] < 0")),
    ("reset if all rows agree",
     "Your state is reset only where a text begins in all rows of the batch at once. Each row has "
     "its own texts, so reset every row where a text begins.",
     (NEW, "(text[:, t] != text[:, t - 1]).all().expand(B) if t else text[:, 0] < 0")),
    ("texts of the first row",
     "You reset the state of every row where the first row's texts begin. Row b of `text` belongs "
     "to row b of the batch. In each row, compare a token's number with that of the token before.",
     (NEW, "(text[:1, t] != text[:1, t - 1]).expand(B) if t else text[:, 0] < 0")),
    ("first reset alone",
     "Your state is reset only at the start of the second text, and is then carried through all "
     "later texts. Reset it at the first token of every text.",
     (NEW, "(text[:, t] != text[:, 0]) & (text[:, t - 1] == text[:, 0]) if t else text[:, 0] < 0")),
    ("kept for text 0 alone",
     "Your state is reset at every token whose text number is not 0. Reset it only where the "
     "number differs from that of the token before.",
     (NEW, "text[:, t] != 0")),
    ("kept for the first text alone",
     "Your state is reset at every token after the first text. Every token must see what earlier "
     "tokens of its own text wrote, so reset only where the number differs from that of the token "
     "before.",
     (NEW, "text[:, t] != text[:, 0]")),
    ("reset while the text goes on",
     "Your state is reset within each text, and kept where a new text begins. Reset it where the "
     "number *differs* from that of the token before.",
     (NEW, "text[:, t] == text[:, t - 1] if t else text[:, 0] < 0")),
    ("reset at every token",
     "Your state is reset at every token, so each token sees only itself. Reset it only where a "
     "new text begins.",
     (NEW, "text[:, t] == text[:, t]")),
    ("larger numbers alone",
     "Your state is reset only where the text number grows. The next text's number may also be "
     "smaller. Reset the state wherever the number differs from that of the token before.",
     (NEW, "text[:, t] > text[:, t - 1] if t else text[:, 0] < 0")),
    ("steps of 1 alone",
     "Your state is reset only where the text number grows by 1. Reset wherever the number "
     "differs from that of the token before.",
     (NEW, "text[:, t] == text[:, t - 1] + 1 if t else text[:, 0] < 0")),
    ("smaller numbers alone",
     "Your state is reset only where the text number falls. The next text's number may also be "
     "larger. Reset the state wherever the number differs from that of the token before.",
     (NEW, "text[:, t] < text[:, t - 1] if t else text[:, 0] < 0")),
    ("first tokens lost",
     "The first token of each later text leaves no write in your state. You get this result if "
     "the reset comes after the write. Reset first, and then write.",
     (FILL, ""),
     (WRITE, WRITE + FILL.replace("(new[", "((bool(t) & new)["))),
    ("first tokens do not write",
     "The first token of each later text writes nothing in your result, and the state of the text "
     "before is kept. Set the *state* to 0 there, and then write as usual.",
     (FILL, ""),
     (WRITE, "        S = S + k_t.mT @ u_t * ~(bool(t) & new)[:, None, None, None]\n")),
    ("only the error starts anew",
     "At the first token of a text, your error no longer depends on the text before, but your "
     "state still holds that text. Set the state itself to 0.",
     (FILL, "        old, S = S.masked_fill(new[:, None, None, None], 0), S\n"),
     ("k_t @ S)", "k_t @ old)")),
    ("outputs set to zero",
     "Your outputs are 0 at the first token of each text, but the state of the text before is "
     "kept. Set the *state* to 0, before the token writes.",
     (FILL, ""),
     ("outs.append(q_t @ S)", "outs.append((q_t @ S).masked_fill(new[:, None, None, None], 0))")),
    ("error of the state before the reset",
     "At the first token of a text, your error still depends on the text before. Reset the state "
     "before you compute the error.",
     (FILL, "        old, S = S, S.masked_fill(new[:, None, None, None], 0)\n"),
     ("k_t @ S)", "k_t @ old)")),
    ("plain write",
     "Your texts are separate, but your tokens write β k vᵀ. The delta rule writes a "
     "correction, so write β k (v − k S)ᵀ.",
     ("v_t - k_t @ S", "v_t")),
    ("plain write, state never reset",
     "Your tokens write β k vᵀ, and your state is carried from text to text. Write β k (v − "
     "k S)ᵀ, and reset the state at the first token of each text.",
     (FILL, ""),
     ("v_t - k_t @ S", "v_t")),
    ("beta not used",
     "Your tokens write the whole error. Multiply it by β.",
     ("beta[:, :, t, None, None] * (v_t", "(v_t")),
    ("read before the write",
     "Your output t is computed before token t writes. Write first, and then read.",
     (WRITE, ""),
     ("        outs.append(q_t @ S)\n", "        outs.append(q_t @ S)\n" + WRITE)),
    ("masked reading alone",
     "Your queries read only what their own text wrote, but your corrections still depend on the "
     "texts before. Also set k_i · k_j to 0 where the texts differ.",
     ("    return torch.cat(outs, dim=2)  # (B, H, L, d_v)",
      "    A = ((k * beta[..., None]) @ k.mT).tril(-1)\n"
      "    U = torch.linalg.solve_triangular(A, v * beta[..., None], upper=False, "
      "unitriangular=True)\n"
      "    same = (text[:, :, None] == text[:, None, :])[:, None]\n"
      "    return (q @ k.mT * same).tril() @ U")),
    ("beta missing for the values",
     "Your texts are separate, but the values lack the factor β on the right side of your "
     "triangular system. Multiply each v by its β.",
     ("    return torch.cat(outs, dim=2)  # (B, H, L, d_v)",
      "    same = (text[:, :, None] == text[:, None, :])[:, None]\n"
      "    A = ((k * beta[..., None]) @ k.mT * same).tril(-1)\n"
      "    U = torch.linalg.solve_triangular(A, v, upper=False, unitriangular=True)\n"
      "    return (q @ k.mT * same).tril() @ U")),
    ("beta missing for what is subtracted",
     "Your texts are separate, but β does not multiply what you subtract from v. Multiply the "
     "whole error, v − k S, by β.",
     ("beta[:, :, t, None, None] * (v_t - k_t @ S)",
      "beta[:, :, t, None, None] * v_t - k_t @ S")),
    ("softmax attention",
     "Your result is softmax attention within each text. Use the delta rule, as in the code "
     "above.",
     ("    return torch.cat(outs, dim=2)  # (B, H, L, d_v)",
      "    same = (text[:, :, None] == text[:, None, :])[:, None].tril()\n"
      "    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=same)")),
    ("masked writing alone",
     "Your corrections keep the texts apart, but your queries still read what other texts wrote. "
     "Also set q_i · k_j to 0 where the texts differ.",
     ("    return torch.cat(outs, dim=2)  # (B, H, L, d_v)",
      "    same = (text[:, :, None] == text[:, None, :])[:, None]\n"
      "    A = ((k * beta[..., None]) @ k.mT * same).tril(-1)\n"
      "    U = torch.linalg.solve_triangular(A, v * beta[..., None], upper=False, "
      "unitriangular=True)\n"
      "    return (q @ k.mT).tril() @ U")),
    ("recalled value added",
     "Your error is v plus what the state returns for the key. Subtract what the state returns: "
     "the error is v − k S.",
     ("v_t - k_t", "v_t + k_t")),
    ("write subtracted",
     "Your write is subtracted from the state. Add it.",
     ("S = S + k_t.mT", "S = S - k_t.mT")),
    ("later tokens seen",
     "Your queries see later tokens of their text. Query t may read only what tokens up to t have "
     "written, so set the scores of later keys to 0.",
     ("    return torch.cat(outs, dim=2)  # (B, H, L, d_v)",
      "    same = (text[:, :, None] == text[:, None, :])[:, None]\n"
      "    A = ((k * beta[..., None]) @ k.mT * same).tril(-1)\n"
      "    U = torch.linalg.solve_triangular(A, v * beta[..., None], upper=False, "
      "unitriangular=True)\n"
      "    return (q @ k.mT * same) @ U")),
    ("tokens before heads",
     "Your outputs have shape (B, L, H, d_v). The tokens must be in dimension 2, so swap "
     "dimensions 1 and 2.",
     ("torch.cat(outs, dim=2)", "torch.cat(outs, dim=2).transpose(1, 2)")),
    ("queries scaled",
     "Your outputs are divided by √d_k. This exercise scales nothing, so remove the factor.",
     ("torch.cat(outs, dim=2)", "torch.cat(outs, dim=2) / d_k**0.5")),
    ("reset where the number is 0",
     "Your state is reset at every token whose text number is 0. Reset it only where the number "
     "differs from that of the token before.",
     (NEW, "text[:, t] == 0")),
    ("compared with the position",
     "Your state is reset where the text number differs from the position t. Compare it with the "
     "number of the token before.",
     (NEW, "text[:, t] != t")),
    ("overwritten in place of a reset",
     "The first token of each text writes with β = 1 in your result, but the state of the text "
     "before is kept. Set the *state* to 0 there, and then write with the token's own β.",
     ("        S = S.masked_fill(new[:, None, None, None], 0)\n"
      "",
      ""),
     ("beta[:, :, t, None, None] *",
      "torch.where((bool(t) & new)[:, None], 1, beta[:, :, t])[..., None, None] *")),
    ("texts in the order of their numbers",
     "Your outputs are right for each text, but in the order of the text numbers. Put each "
     "output back at the position of its token.",
     ("    return torch.cat(outs, dim=2)  # (B, H, L, d_v)",
      "    order = text.argsort(dim=1, stable=True)[:, None, :, None]  # (B, 1, L, 1)\n"
      "    out = torch.cat(outs, dim=2)\n"
      "    return out.gather(2, order.expand_as(out))")),
    ("number of the last new text of row 0",
     "You update the last text number only when the first row begins a new text. In every row, "
     "compare each token with the token before it in the same row.",
     ("    outs = []", "    outs, last = [], text[:, 0]"),
     ("        S = S.masked_fill(new[:, None, None, None], 0)\n"
      "",
      "        new = text[:, t] != last\n"
      "        last = text[:, t] if new[0] else last\n"
      "        S = S.masked_fill(new[:, None, None, None], 0)\n"
      "")),
    ("only new maxima",
     "Your state is reset only where the text number is larger than all before it. Numbers need "
     "not increase, so reset wherever the number differs from that of the token before.",
     (NEW, "text[:, t] > text[:, :t].amax(dim=1) if t else text[:, 0] < 0")),
    ("never reset for text 0",
     "Your state is reset where the text number changes, except when the new number is 0. A text "
     "may have the number 0, so reset the state there, too.",
     (NEW, "(text[:, t] != text[:, t - 1]) & (text[:, t] != 0) if t else text[:, 0] < 0")),
    ("always reset for text 0",
     "Your state is also reset at every token whose text number is 0. Reset it only where the "
     "number differs from that of the token before.",
     (NEW,
      "(text[:, t] != text[:, t - 1]) | (text[:, t] == 0) if t else text[:, 0] == "
      "text[:, 0]")),
    ("compared with the first row",
     "You compare each row's text number with the number before it in the first row. Compare it "
     "with the token before it in its own row.",
     (NEW, "text[:, t] != text[0, t - 1] if t else text[:, 0] < 0")),
    ("texts of the last row",
     "You reset the state of every row where the last row's texts begin. Row b of `text` belongs "
     "to row b of the batch. In each row, compare a token's number with that of the token before.",
     (NEW, "(text[-1:, t] != text[-1:, t - 1]).expand(B) if t else text[:, 0] < 0")),
    ("two tokens back",
     "You compare each token with the one two positions before it, so the state is also reset at "
     "the second token of each later text. Compare each token with the one right before it.",
     (NEW, "text[:, t] != text[:, max(t - 2, 0)] if t else text[:, 0] < 0")),
    ("value set to 0 in place of a reset",
     "The first token of each text writes −β k (k S)ᵀ in your result, as if its value were 0, and "
     "the state of the text before is kept. Set the *state* to 0 there, and write v as given.",
     ("        S = S.masked_fill(new[:, None, None, None], 0)\n"
      "",
      ""),
     ("(v_t - k_t @ S)", "(v_t * ~new[:, None, None, None] - k_t @ S)")),
    ("first token without a write, state kept",
     "The first token of each text writes nothing in your result, and the state of the text "
     "before is kept. Set the *state* to 0 there, and then write as usual.",
     ("        S = S.masked_fill(new[:, None, None, None], 0)\n"
      "",
      ""),
     ("S = S + k_t.mT @ u_t", "S = S + k_t.mT @ u_t * ~new[:, None, None, None]")),
]  # fmt: skip

exercise = Exercise(
    "13.7", packed_delta_rule, inputs, MISTAKES, names="B H L d_v", differentiable=True,
    also_right=[text_by_text, by_a_triangular_system],
)  # fmt: skip
