// Predictions on a page: choose, open the result, and read both together.
// SAYS and HOW hold the words of course_utils/predictions.py. A choice is known until the tab is
// closed.

const say = (words, values = {}) =>
  SAYS[words].replace(/{(\w+)}/g, (_, name) => values[name]);

// Put a sentence into an element, its values emphasised.
function show(element, words, values) {
  const parts = SAYS[words].split(/{(\w+)}/).map((part, i) => {
    if (i % 2 === 0) return part;
    const marked = document.createElement("em");
    marked.textContent = values[part];
    return marked;
  });
  element.replaceChildren(...parts);
}

// [true] or [false] for each question whose result was compared with a choice: was that right?
const compared = new Map();

for (const form of document.querySelectorAll("form.prediction")) {
  const place = document.getElementById(form.dataset.result);
  const { result, shown } = place.dataset;
  const status = form.querySelector("[role=status]");
  const button = form.querySelector("button");
  const key = `${location.pathname} ${form.querySelector("legend span").textContent}`;
  let seenBefore = false;  // the result, before anything was chosen

  const folds = [...document.querySelectorAll("details.fold")].filter(
    (fold) => follows(form, fold) && (fold.contains(place) || follows(fold, place)));
  button.hidden = false;

  form.addEventListener("input", () => {
    const predicted = choice(form);
    if (seenBefore) status.textContent = say("late");
    else if (predicted === null) status.textContent = say("no number");
    else status.textContent = say("noted", HOW);
    if (seenBefore && predicted !== null) show(place, "too late", { predicted, result: shown });
  });

  form.addEventListener("submit", () => {
    for (const fold of folds) fold.open = true;
    folds[0]?.querySelector("summary").focus();
    compare();
  });

  place.closest("details")?.addEventListener("toggle", compare);

  function compare() {
    const predicted = choice(form);
    if (seenBefore || compared.has(form)) return;
    if (predicted === null) {
      seenBefore = true;
      return;
    }
    const right = isRight(predicted, result, Number(form.dataset.factor));
    compared.set(form, right);
    sessionStorage.setItem(key, predicted);
    form.querySelector("fieldset").disabled = true;
    button.hidden = true;
    status.textContent = say("fixed");
    show(place, right ? "right" : "wrong", { predicted, result: shown });
    count();
  }

  form.elements.predicted.value = sessionStorage.getItem(key) ?? "";
  if (choice(form) !== null) compare();
}

// The theme gives no name to what unfolds a lesson's exercises and solutions.
for (const item of document.querySelectorAll(".bd-sidebar-primary li.has-children")) {
  item.querySelector("summary").ariaLabel = `Below ${item.querySelector("a").textContent.trim()}`;
}

// On the page of a search, excerpts begin with the article, not with the theme's buttons above it.
if (typeof Search !== "undefined") {
  const textOf = Search.htmlToText;
  Search.htmlToText = (text, anchor) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    return textOf(`<div role="main">${page.querySelector("article").innerHTML}</div>`, anchor);
  };
}

function follows(first, second) {
  return first.compareDocumentPosition(second) & Node.DOCUMENT_POSITION_FOLLOWING;
}

// What is chosen, as text; null if it is nothing, or no number where one is asked for.
function choice(form) {
  const predicted = new FormData(form).get("predicted");
  if (!form.dataset.factor) return predicted;
  return predicted.trim() === "" || Number.isNaN(Number(predicted)) ? null : predicted;
}

function isRight(predicted, result, factor) {
  if (!factor) return predicted === result;
  const [a, b] = [Number(predicted), Number(result)];
  return a === b || (a * b > 0 && Math.max(a / b, b / a) <= factor);
}

// Say at the end of the lesson how many were right, with links to those that were not.
function count() {
  const place = document.querySelector(".surprises");
  if (!place) return;
  const asked = document.querySelectorAll("form.prediction").length;
  const wrong = [...compared].filter(([, right]) => !right).map(([form]) => form);
  place.replaceChildren(document.createElement("p"), document.createElement("ul"));
  place.firstChild.textContent =
    say("count", { predicted: compared.size, asked, wrong: wrong.length });
  for (const form of wrong) {
    const link = document.createElement("a");
    link.href = `#${form.id}`;
    link.textContent = form.querySelector("legend span").textContent;
    place.lastChild.append(document.createElement("li"));
    place.lastChild.lastChild.append(link);
  }
}
