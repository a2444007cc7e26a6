// How numbers and names are written, and how elements are made: text is always text, never markup.

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "hidden" || name === "disabled" || name === "checked") element[name] = value;
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function twoDecimals(value) {
  if (value > 0 && value < 0.005) return "<0.01";
  if (value < 1 && value > 0.995) return ">0.99";
  return value.toFixed(2);
}

// Two numbers with as many decimals as it takes to tell them apart.
export function apart(first, second) {
  for (let digits = 2; digits < 7; digits += 1) {
    if (first.toFixed(digits) !== second.toFixed(digits)) return [first.toFixed(digits), second.toFixed(digits)];
  }
  return [twoDecimals(first), twoDecimals(second)];
}

export function percent(value) {
  return `${+(100 * value).toFixed(1)} %`;
}

// A part of a whole in percent, never rounded to nothing or to all.
export function fraction(part, whole) {
  const rounded = Math.round((100 * part) / whole);
  if (rounded === 0 && part > 0) return "under 1 %";
  if (rounded === 100 && part < whole) return "over 99 %";
  return `${rounded} %`;
}

export function listed(parts) {
  return parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}`;
}

export function count(number, one, many) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

// "nothing" is said of the whole tree, which is always right and never helps.
export function predictionName(node) {
  return node.level === "nothing" ? "Cannot tell" : node.label;
}

export function threeNumbers(node) {
  if (node.level === "nothing") return "together certain";
  if (node.belief === null) return `probability ${twoDecimals(node.probability)}`;
  return `belief ${twoDecimals(node.belief)}, probability ${twoDecimals(node.probability)}, plausibility ${twoDecimals(node.plausibility)}`;
}

// The rule of the hedge: down the path while the next node is probable enough.
export function hedged(path, threshold) {
  let found = path[0];
  for (const node of path.slice(1)) {
    if (node.probability < threshold) break;
    found = node;
  }
  return found;
}

export function bar(node) {
  const track = make("span", { class: "bar", "aria-hidden": "true" });
  const piece = (kind, from, to) => {
    const part = make("i", { class: kind });
    part.style.left = `${100 * from}%`;
    part.style.width = `${100 * Math.max(to - from, 0)}%`;
    track.append(part);
  };
  if (node.belief === null) {
    piece("belief", 0, node.probability);
    return track;
  }
  piece("belief", 0, node.belief);
  piece("plausible", node.belief, node.plausibility);
  const mark = make("i", { class: "mark" });
  mark.style.left = `${Math.min(100 * node.probability, 99)}%`;
  track.append(mark);
  return track;
}

// A spreadsheet takes a cell that begins like this for a formula.
const FORMULA = /^[=+\-@\t\r]/;

function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = FORMULA.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function toCsv(rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => name !== "error");
  columns.push("error");
  const lines = rows.map((row) => columns.map((name) => csvCell(row[name])).join(","));
  return `${[columns.map(csvCell).join(","), ...lines].join("\n")}\n`;
}

export function save(text, type, name) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = make("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
