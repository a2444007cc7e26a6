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

function columns(name, label, node, isEvidential) {
  const row = { [name]: label, [`${name}_probability`]: rounded(node.probability) };
  if (isEvidential) {
    row[`${name}_belief`] = rounded(node.belief);
    row[`${name}_plausibility`] = rounded(node.plausibility);
  }
  return row;
}

const RESERVED = new Set(["image", "images", "leaf", "hedged", "hedged_level", "nonspecificity", "error"]);

// The columns of `skh2edl predict`.
export function tableRow(photo, hedgedOf, model) {
  if (photo.prediction === null) return { image: photo.name, error: photo.problem ?? "not classified" };
  const { prediction } = photo;
  const isEvidential = model.is_evidential;
  const leaf = prediction.path[prediction.path.length - 1];
  const row = { image: photo.name, images: prediction.n_images, ...columns("leaf", leaf.label, leaf, isEvidential) };
  for (const level of prediction.levels.slice(0, -1)) {
    const name = RESERVED.has(level.level) ? `level_${level.level}` : level.level;
    Object.assign(row, columns(name, level.label, level, isEvidential));
  }
  const node = hedgedOf(prediction);
  Object.assign(row, columns("hedged", node.label, node, isEvidential), { hedged_level: node.level });
  if (isEvidential) {
    row.nonspecificity = rounded(prediction.nonspecificity);
    for (const stop of prediction.stops) row[`belief_stops_at_${stop.level}`] = rounded(stop.mass);
  }
  return { ...row, error: null };
}
