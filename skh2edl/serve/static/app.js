// The page: what is chosen, what is shown, and how sure a prediction must be.

import { ask, batches, filesOf, fuse, newFused, newPhoto, predict, tableRow, withRenewal } from "./photos.js";
import { OpinionTree } from "./tree.js";
import { apart, bar, count, fraction, hedged, listed, make, percent, predictionName, save, threeNumbers, toCsv, twoDecimals } from "./words.js";

const by = (id) => document.getElementById(id);
const photos = [];
let model = null;
let selected = null;
let isSending = false;

// How sure a prediction must be -----------------------------------------------------------------

function isGuaranteed() {
  return model.hedge !== null && document.querySelector("input[name=kind]:checked").value === "accuracy";
}

function chosenGuarantee() {
  return model.hedge.guarantees[Number(by("slider").value)];
}

function threshold() {
  return isGuaranteed() ? chosenGuarantee().threshold : Number(by("slider").value) / 100;
}

function hedgedOf(prediction) {
  return hedged(prediction.path, threshold());
}

function setUpSlider() {
  const slider = by("slider");
  slider.min = 0;
  slider.step = 1;
  if (isGuaranteed()) {
    const { guarantees } = model.hedge;
    slider.max = guarantees.length - 1;
    const at = guarantees.findIndex((each) => each.target_accuracy >= 0.95);
    slider.value = at < 0 ? guarantees.length - 1 : at;
  } else {
    slider.max = 99;
    slider.value = 50;
  }
}

function sayHedge() {
  const slider = by("slider");
  const said = isGuaranteed() ? percent(chosenGuarantee().target_accuracy) : `≥ ${threshold().toFixed(2)}`;
  const least = threshold();
  let note = `Predictions stop where the probability falls below ${twoDecimals(least)}. `;
  if (isGuaranteed()) {
    const { n_images: n, unit, is_exact: isExact } = model.hedge;
    note += `On average ${isExact ? "at least" : "about"} ${said} of them are right or say that they cannot tell, for single photographs like ${unit === "subject" ? "those of " : ""}the ${count(n, `held-out ${unit}`, `held-out ${unit}s`)} that set this threshold; not for each class.`;
    if (least > 0.99) note += " Some of those were wrong with nearly as high a probability, so few predictions remain: a lower target says more.";
  } else {
    note += model.hedge === null
      ? "No accuracy is guaranteed: the model file has no hedge; skh2edl calibrate sets it."
      : "No accuracy is guaranteed for a threshold set by hand.";
  }
  by("sure").textContent = said;
  slider.setAttribute("aria-label", isGuaranteed() ? "Target accuracy" : "Least probability");
  by("record").textContent = sayRecord();
  by("hedge-note").textContent = note;
}

// Who does not see the prediction climb hears it with each step of the slider.
function sayAloud() {
  const climbed = selected ? `: ${predictionName(hedgedOf(selected.prediction))}` : "";
  by("slider").setAttribute("aria-valuetext", `${by("sure").textContent}${climbed}`);
}

// How held-out photographs fare ------------------------------------------------------------------

// For each depth, at the chosen setting: how many held-out photographs stop there, and right ones.
function stops() {
  if (isGuaranteed()) return chosenGuarantee().stops;
  return model.held_out?.stops[Number(by("slider").value)] ?? [];
}

const NO_RECORD = "How often this model is right is not on record in its file; skh2edl calibrate records it.";

// Deepest first: what somebody who moves the slider wants to know.
function sayRecord() {
  const all = stops();
  if (!all.length) return "";
  const { n_images: n } = model.held_out;
  const parts = [];
  for (let depth = all.length - 1; depth > 0; depth -= 1) {
    const [stopped, right] = all[depth];
    if (stopped) parts.push(`${theLevel(depth)} for ${fraction(stopped, n)} (${fraction(right, stopped)} of them right)`);
  }
  if (all[0][0] === n) return `At this setting the model cannot tell for any of ${count(n, "held-out photograph", "held-out photographs")}.`;
  const silent = all[0][0] ? `, and cannot tell for ${fraction(all[0][0], n)}` : "";
  return `Of ${count(n, "held-out photograph", "held-out photographs")}, at this setting the model names ${listed(parts)}${silent}.`;
}

function levelName(depth) {
  const level = model.tree.levels[depth - 1];
  return level === "leaf" ? "finest class" : level.replaceAll("_", " ");
}

function theLevel(depth) {
  const name = levelName(depth);
  return name.startsWith("level ") ? name : `the ${name}`;
}

// How often the model is right at the level of a node, beside what it says of one photograph.
function sayAccuracy(node, isFused) {
  if (model.held_out === null) return NO_RECORD;
  const { n_images: n, n_right: right } = model.held_out;
  const all = `${count(n, "held-out photograph", "held-out photographs")}`;
  const [stopped, good] = isFused ? [0, 0] : stops()[node.depth] ?? [0, 0];
  if (node.level === "nothing") return stopped ? `The same happens with ${stopped.toLocaleString("en")} of ${all} (${fraction(stopped, n)}).` : "";
  const known = right[node.depth - 1];
  if (known === null) return `How often the model is right at this level is not on record; at the finest it was for ${fraction(right[right.length - 1], n)} of ${all}.`;
  const own = `At this level the model was right for ${fraction(known, n)} of ${all}`;
  return stopped ? `${own}; of those where it stops here, as with this one, for ${good} of ${stopped} (${fraction(good, stopped)}).` : `${own}.`;
}

function onHedge() {
  sayHedge();
  for (const photo of photos) sayPrediction(photo);
  sayAloud();
  if (!selected) return;
  showPrediction(selected);
  sayDetail(hedgedOf(selected.prediction));
}

// The list of photographs --------------------------------------------------------------------

function picture(photo, kind) {
  if (photo.parts !== null) return make("span", { class: `${kind} several` }, ...photo.parts.slice(0, 4).map((part) => picture(part, "part")));
  const image = make("img", { class: kind, src: photo.url, alt: "", loading: "lazy", decoding: "async" });
  image.addEventListener("error", () => image.replaceWith(make("span", { class: `${kind} none` }, "no preview")));
  return image;
}

function addToList(photo) {
  const said = make("span", { class: "said" });
  const open = make("button", { type: "button", class: "open", on: { click: () => select(photo) } }, picture(photo, "thumb"), make("span", { class: "what" }, make("span", { class: "file soft small" }, photo.name), said));
  const tick = make("input", { type: "checkbox", "aria-label": `Fuse ${photo.name}`, on: { change: () => { photo.isTicked = tick.checked; sayFusing(); } } });
  const remove = make("button", { type: "button", class: "remove", "aria-label": `Remove ${photo.name}`, on: { click: () => drop(photo) } }, "×");
  photo.item = make("li", {}, photo.parts === null ? make("label", { class: "tick" }, tick) : make("span", { class: "tick" }), open, remove);
  photo.view = { said, tick, open };
  by("list").append(photo.item);
  sayPrediction(photo);
}

function sayPrediction(photo) {
  const { said, tick } = photo.view;
  tick.disabled = photo.prediction === null;
  said.classList.toggle("bad", photo.state === "failed");
  if (photo.state === "failed") said.textContent = photo.problem;
  else if (photo.prediction === null) said.textContent = photo.state === "sending" ? "being read …" : "waiting …";
  else {
    const node = hedgedOf(photo.prediction);
    said.textContent = node.level === "nothing" ? predictionName(node) : `${node.label}, ${twoDecimals(node.probability)}`;
    if (photo.prediction.conflict.length) said.append(make("span", { class: "bad small" }, " · they contradict each other"));
  }
}

function sayFusing() {
  const ticked = photos.filter((photo) => photo.isTicked && photo.prediction !== null);
  by("fuse").disabled = ticked.length < 2;
  by("fuse").textContent = ticked.length < 2 ? "Fuse into one prediction" : `Fuse ${ticked.length} into one prediction`;
  by("tools").hidden = !photos.length;
}

function drop(photo) {
  const place = photos.indexOf(photo);
  const hadFocus = photo.item.contains(document.activeElement);
  photos.splice(place, 1);
  photo.item.remove();
  const next = photos[Math.min(place, photos.length - 1)] ?? null;
  if (selected === photo) select(next);
  if (hadFocus) (next ? next.view.open : by("pick")).focus();
  release();
  sayFusing();
}

// Pictures of what was removed are needed as long as a fused prediction shows them.
function release() {
  const needed = new Set(photos.flatMap((photo) => [photo, ...(photo.parts ?? [])]));
  for (const photo of everSeen) {
    if (needed.has(photo) || photo.url === null) continue;
    URL.revokeObjectURL(photo.url);
    everSeen.delete(photo);
  }
}

const everSeen = new Set();

// Sending ------------------------------------------------------------------------------------

function complain(message) {
  by("problems").replaceChildren(make("p", { class: "bad" }, message));
}

async function add(files) {
  const images = [...files];
  if (!images.length) return;
  by("problems").replaceChildren();
  for (const file of images) {
    const photo = newPhoto(file);
    photos.push(photo);
    everSeen.add(photo);
    addToList(photo);
  }
  sayFusing();
  if (!isSending) await send();
}

async function predictOrFail(batch) {
  try {
    await predict(batch);
  } catch (problem) {
    if (batch.length > 1) { // one of them may be the reason, such as a file that is gone
      for (const photo of batch) await predictOrFail([photo]);
      return;
    }
    batch[0].state = "failed";
    batch[0].problem = problem.message;
    complain(problem.message);
  }
}

async function send() {
  isSending = true;
  try {
    for (;;) {
      const waiting = photos.filter((photo) => photo.state === "waiting");
      if (!waiting.length) break;
      for (const batch of batches(waiting, model.limits)) {
        const here = batch.filter((photo) => photos.includes(photo));
        if (!here.length) continue;
        for (const photo of here) { photo.state = "sending"; sayPrediction(photo); }
        sayProgress();
        await predictOrFail(here);
        for (const photo of here) sayPrediction(photo);
        if (selected === null) {
          const first = here.find((photo) => photo.prediction !== null && photos.includes(photo));
          if (first) select(first);
        }
        sayFusing();
      }
      for (const photo of waiting) if (photo.state === "failed") sayPrediction(photo);
    }
  } finally {
    isSending = false;
    sayProgress();
  }
}

function sayProgress() {
  const own = photos.filter((photo) => photo.parts === null);
  const done = own.filter((photo) => photo.state === "done" || photo.state === "failed").length;
  const failed = own.filter((photo) => photo.state === "failed").length;
  let text = "";
  if (done < own.length) text = `${done} of ${own.length} classified`;
  else if (own.length) text = `${count(own.length - failed, "photograph", "photographs")} classified`;
  if (failed) text += `, ${failed} could not be used`;
  by("progress").textContent = text;
}

async function fuseTicked() {
  const parts = photos.filter((photo) => photo.isTicked && photo.prediction !== null);
  const how = model.is_evidential ? by("how").value : "averaging";
  by("problems").replaceChildren();
  by("fuse").disabled = true;
  try {
    // Any of the parts may have been forgotten; asking for its first class says so.
    for (const part of parts) await withRenewal(part, (id) => ask(`api/children?prediction=${encodeURIComponent(id)}&limit=1`));
    const fused = newFused(parts, how, await fuse(parts, how));
    photos.push(fused);
    for (const part of parts) { part.isTicked = false; part.view.tick.checked = false; }
    addToList(fused);
    select(fused);
    by("headline").focus();
  } catch (problem) {
    complain(problem.message);
  }
  sayFusing();
}

// One prediction ---------------------------------------------------------------------------------

const tree = new OpinionTree(
  by("tree"),
  async (node, offset, limit) => {
    try {
      return await withRenewal(selected, (id) => ask(`api/children?prediction=${encodeURIComponent(id)}&node=${node}&offset=${offset}&limit=${limit}`));
    } catch (problem) {
      complain(problem.message);
      return null;
    }
  },
  (node) => sayDetail(node),
);

function select(photo) {
  if (selected) selected.view.open.removeAttribute("aria-current");
  selected = photo?.prediction ? photo : null;
  by("empty").hidden = selected !== null;
  by("shown").hidden = selected === null;
  if (!selected) {
    if (photo?.state === "failed") complain(photo.problem);
    return;
  }
  selected.view.open.setAttribute("aria-current", "true");
  const { prediction } = selected;
  by("pictures").replaceChildren(picture(selected, "shot"));
  const names = prediction.n_images === 1 ? prediction.name : `${prediction.n_images} photographs fused: ${prediction.name}`;
  by("of").textContent = names;
  by("explanation").textContent = prediction.explanation;
  showConflict(prediction.conflict);
  by("find").value = "";
  by("found").hidden = true;
  tree.show(prediction.path[0], prediction.tree, hedgedOf(prediction).node);
  showPrediction(selected);
  sayAloud();
  sayDetail(hedgedOf(prediction));
}

function showPrediction(photo) {
  const { prediction } = photo;
  const node = hedgedOf(prediction);
  by("headline").textContent = predictionName(node);
  by("numbers").replaceChildren(...(node.level === "nothing" ? [sayLeaning(prediction.path[1])] : [make("strong", {}, node.title), `: ${threeNumbers(node)}`]));
  by("accuracy").textContent = sayAccuracy(node, prediction.n_images > 1);
  showLevels(prediction.path, node);
  tree.mark(node.node);
  const next = prediction.path[prediction.path.indexOf(node) + 1];
  const notes = [];
  if (next) {
    const [own, least] = apart(next.probability, threshold());
    notes.push(`It does not say ${next.name}: ${own} is below the ${least} that this setting asks for.`);
  }
  if (prediction.n_images > 1) notes.push(isGuaranteed() ? "Guarantee and figures hold for single photographs, not for fused ones." : "The figures are of single photographs, not of fused ones.");
  by("withheld").textContent = notes.join(" ");
}

// Where nothing is sure enough, what it leans to.
function sayLeaning(node) {
  return node === undefined ? "There is only one class." : `No class is sure enough for this setting. It leans to the ${node.title} ${node.name}, probability ${twoDecimals(node.probability)}.`;
}

function showLevels(path, predicted) {
  const reached = path.indexOf(predicted);
  const rows = path.slice(1).map((node, place) => {
    const cells = [make("th", { scope: "row" }, node.title), make("td", {}, node.name), make("td", { class: "number" }, twoDecimals(node.probability))];
    if (model.held_out !== null) {
      const right = model.held_out.n_right[node.depth - 1];
      cells.push(make("td", { class: "number" }, right === null ? "–" : fraction(right, model.held_out.n_images)));
    }
    const state = place + 1 === reached ? "here" : place + 1 < reached ? "above" : "below";
    return make("tr", { class: state, "aria-current": state === "here" ? "true" : null }, ...cells);
  });
  by("levels").tBodies[0].replaceChildren(...rows);
}

function showConflict(sides) {
  by("conflict").hidden = !sides.length;
  if (!sides.length) return;
  const kind = model.is_evidential ? "belief" : "probability";
  const lines = sides.map((side) => make("li", {}, make("strong", {}, side.name), ` (${kind} ${twoDecimals(side.belief)}): ${listed(side.images.slice(0, 4))}${side.images.length > 4 ? " and others" : ""}`));
  by("conflict").replaceChildren(
    make("p", {}, make("strong", {}, "These photographs contradict each other."), ` They differ at the level ${sides[0].title}:`),
    make("ul", {}, ...lines),
    make("p", {}, "If they do not all show the same subject, this prediction means nothing: classify them one by one."),
  );
}

function sayDetail(node) {
  const parts = [make("strong", {}, node.name), `: ${threeNumbers(node)}`];
  if (node.n_children && node.mass !== null) parts.push(`; ${twoDecimals(node.mass)} stops here, vacuity ${twoDecimals(node.vacuity)}`);
  if (node.n_leaves > 1) parts.push(`; ${count(node.n_leaves, "class", "classes")}`);
  by("detail").replaceChildren(...parts);
}

let lastSearch = 0;

async function find() {
  const text = by("find").value.trim();
  lastSearch += 1;
  const own = lastSearch;
  if (!text || !selected) { by("found").hidden = true; return; }
  await new Promise((done) => { setTimeout(done, 200); });
  if (own !== lastSearch) return;
  try {
    const found = await withRenewal(selected, (id) => ask(`api/find?prediction=${encodeURIComponent(id)}&text=${encodeURIComponent(text)}&limit=12`));
    if (own !== lastSearch) return;
    const rows = found.nodes.map((node) => make(
      "li",
      { tabindex: 0, on: { focus: () => sayDetail(node), mouseover: () => sayDetail(node) }, "aria-label": `${node.name}, ${threeNumbers(node)}` },
      make("div", { class: "row" }, make("span", { class: "name" }, make("span", { class: "text" }, node.name, node.place ? make("span", { class: "soft small" }, ` in ${node.place}`) : null)), bar(node), make("span", { class: "number" }, twoDecimals(node.probability))),
    ));
    const rest = found.total - found.nodes.length;
    const note = found.total === 0 ? "No class has that in its name." : rest > 0 ? `and ${count(rest, "other", "others")}` : "";
    by("found").replaceChildren(make("ul", { class: "flat" }, ...rows), make("p", { class: "soft small", role: "status" }, note));
    by("found").hidden = false;
  } catch (problem) {
    complain(problem.message);
  }
}

// Start --------------------------------------------------------------------------------------

function download(kind) {
  const rows = photos.map((photo) => tableRow(photo, hedgedOf, model));
  if (kind === "csv") { save(toCsv(rows), "text/csv", "predictions.csv"); return; }
  const hedge = isGuaranteed() ? { target_accuracy: chosenGuarantee().target_accuracy, threshold: threshold() } : { target_accuracy: null, threshold: threshold() };
  const content = { model: model.name, method: model.method, skh2edl: model.version, ...hedge, predictions: rows };
  save(`${JSON.stringify(content, null, 1)}\n`, "application/json", "predictions.json");
}

function listen() {
  by("pick").addEventListener("change", (event) => { add(event.target.files); event.target.value = ""; });
  const area = document.documentElement;
  area.addEventListener("dragover", (event) => { event.preventDefault(); by("drop").classList.add("over"); });
  area.addEventListener("dragleave", (event) => { if (!event.relatedTarget) by("drop").classList.remove("over"); });
  area.addEventListener("drop", async (event) => { event.preventDefault(); by("drop").classList.remove("over"); add(await filesOf(event.dataTransfer)); });
  document.addEventListener("paste", (event) => { add([...event.clipboardData.files].filter((file) => file.type.startsWith("image/"))); });
  by("slider").addEventListener("input", onHedge);
  for (const radio of document.querySelectorAll("input[name=kind]")) radio.addEventListener("change", () => { setUpSlider(); onHedge(); });
  by("fuse").addEventListener("click", fuseTicked);
  by("csv").addEventListener("click", () => download("csv"));
  by("json").addEventListener("click", () => download("json"));
  by("clear").addEventListener("click", () => { select(null); for (const photo of [...photos]) drop(photo); by("pick").focus(); by("problems").replaceChildren(); sayProgress(); });
  by("find").addEventListener("input", find);
}

async function start() {
  try {
    model = await ask("api/model");
  } catch (problem) {
    complain(problem.message);
    return;
  }
  setUpSlider();
  sayHedge();
  sayAloud();
  listen();
  document.documentElement.dataset.ready = "true";
}

start();
