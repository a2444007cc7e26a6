// Photographs: sent a few at a time, classified, fused, and written to a table.

const AT_ONCE = 4;

export class Problem extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    const what = options?.body instanceof FormData ? "The file is gone, or the server does not answer." : "The server does not answer.";
    throw new Problem(`${what} Is it still running?`, 0);
  }
  let content = null;
  try {
    content = await response.json();
  } catch {
    throw new Problem(`The server answered with ${response.status} and no explanation.`, response.status);
  }
  if (!response.ok) throw new Problem(content.error ?? `Error ${response.status}`, response.status);
  return content;
}

export function askJson(path, content) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) });
}

let lastKey = 0;

export function newPhoto(file) {
  lastKey += 1;
  return { key: lastKey, file, url: URL.createObjectURL(file), name: file.name || "image", state: "waiting", prediction: null, problem: null, isTicked: false, parts: null };
}

export function newFused(parts, how, prediction) {
  lastKey += 1;
  return { key: lastKey, file: null, url: null, name: prediction.name, state: "done", prediction, problem: null, isTicked: false, parts, how };
}

const IMAGE = /\.(jpe?g|png|webp|tiff?|bmp|gif|p[pgn]m|jp2|avif)$/i;

// What was dropped: files, and the images in folders, however deep.
export async function filesOf(dropped) {
  const entries = [...dropped.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.some((entry) => entry.isDirectory)) return dropped.files;
  const found = [];
  const walk = async (entry, isInside) => {
    if (entry.isFile) {
      if (!isInside || IMAGE.test(entry.name)) found.push(await new Promise((done, fail) => { entry.file(done, fail); }));
      return;
    }
    const reader = entry.createReader();
    for (;;) { // a browser gives some at a time
      const some = await new Promise((done, fail) => { reader.readEntries(done, fail); });
      if (!some.length) return;
      for (const each of some) await walk(each, true);
    }
  };
  for (const entry of entries) await walk(entry, false);
  return found;
}

// Groups that fit the server's limits; a photograph that cannot fit at all gets its problem here.
export function* batches(photos, limits) {
  const most = limits.max_bytes - 10000; // names and boundaries take space too
  let batch = [];
  let size = 0;
  for (const photo of photos) {
    if (photo.file.size > most) {
      photo.state = "failed";
      photo.problem = `${photo.name} has ${(photo.file.size / 1e6).toFixed(1)} MB, and at most ${limits.max_bytes / 1e6} MB can be sent.`;
      continue;
    }
    if (batch.length >= Math.min(AT_ONCE, limits.max_files) || size + photo.file.size > most) {
      if (batch.length) yield batch;
      batch = [];
      size = 0;
    }
    batch.push(photo);
    size += photo.file.size;
  }
  if (batch.length) yield batch;
}

export async function predict(batch) {
  const form = new FormData();
  for (const photo of batch) form.append("files", photo.file, photo.name);
  const { predictions } = await ask("api/predict", { method: "POST", body: form });
  batch.forEach((photo, place) => {
    const prediction = predictions[place];
    photo.state = prediction.error === null ? "done" : "failed";
    photo.problem = prediction.error;
    photo.prediction = prediction.error === null ? prediction : null;
  });
}

export function fuse(parts, how) {
  return askJson("api/fuse", { predictions: parts.map((part) => part.prediction.id), how });
}

// The server forgets after a while; whoever has the photographs can ask again.
export async function renew(photo) {
  if (photo.parts === null) {
    const kept = photo.prediction;
    await predict([photo]);
    if (photo.state === "failed") {
      photo.state = "done";
      photo.prediction = kept;
      throw new Problem(photo.problem, 0);
    }
    return;
  }
  for (const part of photo.parts) await renew(part);
  photo.prediction = await fuse(photo.parts, photo.how);
}

export async function withRenewal(photo, act) {
  try {
    return await act(photo.prediction.id);
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    await renew(photo);
    return act(photo.prediction.id);
  }
}

const rounded = (value) => (value === null || value === undefined ? null : +value.toFixed(6));

function numbers(name, node, isEvidential) {
  const row = { [`${name}_probability`]: rounded(node.probability) };
  if (isEvidential) {
    row[`${name}_belief`] = rounded(node.belief);
    row[`${name}_plausibility`] = rounded(node.plausibility);
  }
  return row;
}

const RESERVED = new Set(["image", "images", "prediction", "nonspecificity", "error"]);

function levelTitle(level, model) {
  if (model.tree.levels.at(-1) !== "leaf") return level === "leaf" ? model.tree.levels.at(-1) : level;
  return level === "leaf" ? "finest level" : level.replace("_", " ");
}

function levelColumn(level) {
  if (level === "leaf") return "finest_level";
  return RESERVED.has(level) ? `level_${level}` : level;
}

// The columns of `skh2edl predict`.
export function tableRow(photo, hedgedOf, model) {
  if (photo.prediction === null) return { image: photo.name, error: photo.problem ?? "not classified" };
  const { prediction } = photo;
  const isEvidential = model.is_evidential;
  const node = hedgedOf(prediction);
  const says = node.level !== "nothing";
  const named = prediction.path.slice(1, prediction.path.findIndex((each) => each.node === node.node) + 1);
  const row = {
    image: photo.name,
    images: prediction.n_images,
    prediction: says ? node.label : "cannot tell",
    prediction_level: says ? levelTitle(node.level, model) : "cannot tell",
    // All classes together have a probability of 1, which says nothing.
    ...numbers("prediction", says ? node : {}, isEvidential),
    prediction_path: says ? named.map((each) => each.name.replaceAll(" > ", "/")).join("/") : null,
  };
  for (const level of prediction.levels) {
    const name = levelColumn(level.level);
    Object.assign(row, { [name]: level.label }, numbers(name, level, isEvidential));
  }
  if (isEvidential) {
    row.nonspecificity = rounded(prediction.nonspecificity);
    for (const stop of prediction.stops) row[`belief_stops_at_${stop.level}`] = rounded(stop.mass);
  }
  return { ...row, error: null };
}
