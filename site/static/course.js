// Predictions on a page: choose, open the result, and be told what you said and what came.
// SAYS holds the words; they are those of course_utils/predictions.py. What was said is known until
// the tab is closed.

const say = (words, values = {}) =>
  SAYS[words].replace(/{(\w+)}/g, (_, name) => values[name]);

// [true] or [false] for each question whose result has met a choice: was that right?
const met = new Map();

for (const form of document.querySelectorAll("form.prediction")) {
  const result = document.getElementById(form.dataset.result);
  const came = result.dataset.came;
  const status = form.querySelector("[role=status]");
  const button = form.querySelector("button");
  const kept = `${location.pathname}#${form.id}`;
  let shown = false;  // the result, before anything was chosen

  const folds = [...document.querySelectorAll("details.fold")].filter(
    (fold) => follows(form, fold) && (fold.contains(result) || follows(fold, result)));
  button.hidden = false;

  form.addEventListener("input", () => {
    const said = choice(form);
    if (shown) status.textContent = say("late");
    else if (said === null) status.textContent = say("no number");
    else status.textContent = say("noted", { go_on: "open the result below" });
    if (shown && said !== null) result.textContent = say("too late", { said, came });
  });

  form.addEventListener("submit", () => {
    for (const fold of folds) fold.open = true;
    folds[0]?.querySelector("summary").focus();
    compare();
  });

  result.closest("details")?.addEventListener("toggle", compare);

  function compare() {
    const said = choice(form);
    if (shown || met.has(form)) return;
    if (said === null) {
      shown = true;
      return;
    }
    const right = isRight(said, came, Number(form.dataset.factor));
    met.set(form, right);
    sessionStorage.setItem(kept, said);
    form.querySelector("fieldset").disabled = true;
    button.hidden = true;
    status.textContent = say("fixed");
    result.textContent = say(right ? "right" : "wrong", { said, came });
    count();
  }

  form.elements.said.value = sessionStorage.getItem(kept) ?? "";
  if (choice(form) !== null) compare();
}

// The theme gives no name to what unfolds a lesson's exercises and solutions.
for (const item of document.querySelectorAll(".bd-sidebar-primary li.has-children")) {
  item.querySelector("summary").ariaLabel = `Below ${item.querySelector("a").textContent.trim()}`;
}

function follows(first, second) {
  return first.compareDocumentPosition(second) & Node.DOCUMENT_POSITION_FOLLOWING;
}

// What is chosen, as text; null if it is nothing, or no number where one is asked for.
function choice(form) {
  const said = new FormData(form).get("said");
  if (!form.dataset.factor) return said;
  return said.trim() === "" || Number.isNaN(Number(said)) ? null : said;
}

function isRight(said, came, factor) {
  if (!factor) return said === came;
  const [a, b] = [Number(said), Number(came)];
  return a === b || (a * b > 0 && Math.max(a / b, b / a) <= factor);
}

// Say at the end of the lesson how many were right, with links to those that were not.
function count() {
  const place = document.querySelector(".surprises");
  if (!place) return;
  const asked = document.querySelectorAll("form.prediction").length;
  const wrong = [...met].filter(([, right]) => !right).map(([form]) => form);
  place.replaceChildren(document.createElement("p"), document.createElement("ul"));
  place.firstChild.textContent = say("count", { met: met.size, asked, wrong: wrong.length });
  for (const form of wrong) {
    const link = document.createElement("a");
    link.href = `#${form.id}`;
    link.textContent = form.querySelector("legend span").textContent;
    place.lastChild.append(document.createElement("li"));
    place.lastChild.lastChild.append(link);
  }
}
