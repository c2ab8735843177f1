// @ts-check
// Makes the charts and tables of a page workable: exact values under a cursor that all charts share, zoom, logarithmic axes,
// smoothing, another horizontal axis, hidden runs, sorting, and files for papers and spreadsheets.
//
// The server has drawn everything already and put the numbers into each drawing's <metadata>; without this script the page reads
// the same. A page that is pushed new content (the live page) puts it in place with `morph`, which keeps what the reader has chosen. No dependency, no build step. The types below are checked with `tsc --checkJs`.
"use strict";
(() => {
  /** @typedef {{label: string, unit: string|null, log: boolean, zero: boolean, range: [number, number]|null, categories: string[]|null}} Axis */
  /** @typedef {{name: string, part: string, place: number, labelled: boolean, kind: string, style: string, x: (number|null)[][], y: (number|null)[], low?: (number|null)[], high?: (number|null)[]}} Series */
  /** @typedef {{title: string, frame: [number, number, number, number], x: Axis[], y: Axis, series: Series[], marks: [number, string][], rows?: (string|number|null)[][]}} Data */
  /** @typedef {{svg: SVGSVGElement, plot: SVGGElement, over: SVGGElement, data: Data, left: number, hidden: Set<string>, zoom: [number, number]|null, logX: boolean, logY: boolean, scale: Scales|null, tip: HTMLElement, grip: SVGRectElement, values: ValueTable|null, frame: [number, number, number, number], size: [number, number], made: string, entries: string}} Chart */
  /** The values of a chart at one moment, as a table under it. @typedef {{box: HTMLElement, at: HTMLElement, table: HTMLTableElement, columns: string}} ValueTable */
  /** A moment, by the name of each axis that it has a place on. @typedef {Record<string, number>} Moment */
  /** A series at a moment. @typedef {{name: string, place: number, value: number, smooth: number|null, places: (number|null|undefined)[], height: number}} Reading */
  /** @typedef {{x: Scale, y: Scale, axis: number}} Scales */
  /** @typedef {{low: number, high: number, log: boolean, at: (value: number) => number, back: (place: number) => number, ticks: number[]}} Scale */

  const COLOURS = 7;
  const DASHES = 4;
  const TEXT = 13;
  const NS = "http://www.w3.org/2000/svg";
  /** @type {Chart[]} */
  let charts = [];
  /** Where the pointer is, as long as it is in a chart: on its horizontal axis, and how far down, where that is known. @type {{chart: Chart, place: number, height: number|null}|null} */
  let pointer = null;
  /** The moment that a click holds in all charts. @type {Moment|null} */
  let held = null;
  /** How tables of values are sorted: by a column's name, `""` for the order of the legend. */
  const sorted = { by: "", falling: false };
  /** The horizontal axis that is asked for, and how much curves are smoothed, from 0 to 0.99; the same for all charts. */
  const shared = { axis: "step", smoothing: 0 };

  /** @param {string} name @param {Record<string, string|number>} attributes @param {string} [text] */
  const shape = (name, attributes, text) => {
    const element = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
    if (text !== undefined) element.textContent = text;
    return element;
  };
  /** @param {string} name @param {Record<string, string>} attributes @param {string} [text] */
  const html = (name, attributes, text) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  /** @param {number} value */
  const round = (value) => Math.round(Math.max(-1e5, Math.min(1e5, value)) * 10) / 10;
  /** @param {number|null|undefined} value @returns {value is number} */
  const known = (value) => typeof value === "number" && Number.isFinite(value);
  /** @param {number} place */
  const look = (place) => `c${place % COLOURS} k${Math.floor(place / COLOURS) % DASHES}`;

  /** A number as people read it. @param {number} value */
  const words = (value) => {
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(3);
    const digits = size >= 1000 ? 1 : size >= 10 ? 3 : 5;
    return value.toLocaleString("en-US", { maximumFractionDigits: digits });
  };
  /** A place on an axis: whole steps and examples, hundredths of a second. @param {Axis} axis @param {number} place */
  const spot = (axis, place) => axis.label === "step" || axis.label === "examples" ? Math.round(place).toLocaleString("en-US")
    : axis.unit === "s" && Math.abs(place) >= 0.1 ? place.toLocaleString("en-US", { maximumFractionDigits: 2 }) : words(place);
  /** @param {Axis} axis */
  const caption = (axis) => axis.unit ? (axis.label ? `${axis.label} (${axis.unit})` : axis.unit) : axis.label;

  // Axes.

  /** @param {number} low @param {number} high @param {number} wanted */
  const linearTicks = (low, high, wanted) => {
    const rough = (high - low) / Math.max(1, wanted);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = (([1, 2, 2.5, 5, 10].find((lead) => rough / power <= lead * 1.15)) ?? 10) * power;
    /** @type {number[]} */
    const ticks = [];
    if (!(step > 0) || !Number.isFinite(step)) return ticks;
    for (let at = Math.ceil(low / step - 1e-9); at <= high / step + 1e-9 && ticks.length < 50; at++) {
      ticks.push(Number((at * step).toPrecision(12)));
    }
    return ticks;
  };
  /** @param {number} low @param {number} high @param {number} wanted */
  const logTicks = (low, high, wanted) => {
    const decades = Math.log10(high / low);
    const leads = decades < 2.5 ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil(decades / Math.max(1, wanted)));
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      if (((power % every) + every) % every !== 0) continue;
      for (const lead of leads) {
        const tick = lead * 10 ** power;
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(Number(tick.toPrecision(6)));
      }
    }
    return ticks.length > 1 ? ticks : linearTicks(low, high, wanted);
  };
  /**
   * Fits a scale to values between two places of the drawing.
   * @param {number[]} values @param {{log: boolean, zero: boolean, range: [number, number]|null}} how
   * @param {number} from @param {number} to @param {number} wanted @returns {Scale}
   */
  const fitted = (values, how, from, to, wanted) => {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      if (how.log && value <= 0) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low > high) [low, high] = how.log ? [1, 10] : [0, 1];
    if (how.range && !(how.log && how.range[0] <= 0)) {
      [low, high] = how.range;
    } else if (how.log) {
      const margin = Math.max(0.1, Math.log(high / low) * 0.05);
      low *= Math.exp(-margin);
      high *= Math.exp(margin);
    } else {
      if (how.zero) { low = Math.min(0, low); high = Math.max(0, high); }
      const span = high - low;
      const margin = span > 0 ? span * 0.06 : Math.max(0.5, Math.abs(high) * 0.1);
      if (!(how.zero && low === 0 && span > 0)) low -= margin;
      if (!(how.zero && high === 0 && span > 0)) high += margin;
    }
    const [a, b] = how.log ? [Math.log(low), Math.log(high)] : [low, high];
    return {
      low, high, log: how.log,
      at: (value) => from + ((how.log ? Math.log(value) : value) - a) / (b - a) * (to - from),
      back: (place) => {
        const value = a + (place - from) / (to - from) * (b - a);
        return how.log ? Math.exp(value) : value;
      },
      ticks: how.log ? logTicks(low, high, wanted) : linearTicks(low, high, wanted),
    };
  };
  /** @param {number[]} ticks @param {number} most */
  const tickLabels = (ticks, most) => {
    const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : Math.abs(ticks[0] ?? 1);
    return ticks.map((tick) => {
      if (tick !== 0 && (most >= 1e9 || most < 1e-4)) return tick.toExponential(1).replace("-", "\u2212");
      if (most >= 1e6 && tick !== 0) return `${Number((tick / 1e6).toPrecision(4))}M`;
      const fewest = Math.min(step, tick === 0 ? step : Math.abs(tick));
      const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(fewest) + 1e-9) + (Number.isInteger(fewest / 10 ** Math.floor(Math.log10(fewest) + 1e-9)) ? 0 : 1)));
      return tick.toLocaleString("en-US", { maximumFractionDigits: digits }).replace("-", "\u2212");
    });
  };

  // Drawing.

  /** On paper, charts have the size that the server gave them. */
  let onPaper = false;
  /** The server's size of a drawing, which its viewBox had at first. @param {Chart} chart */
  const ownSize = (chart) => (chart.svg.dataset.box ?? "0 0 380 260").split(" ").slice(2).map(Number);
  /** The size at which a chart has its letters as large as the page's: what its card has room for, if that is more than the server's. @param {Chart} chart @returns {[number, number]} */
  const wanted = (chart) => {
    const [width, height] = ownSize(chart);
    const figure = chart.svg.closest("figure");
    if (onPaper || !figure) return [width, height];
    const style = getComputedStyle(figure);
    const room = Math.floor(figure.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
    if (!(room > width * 1.1)) return [width, height];
    return [room, "wide" in figure.dataset ? Math.max(height, Math.min(room * 0.5, innerHeight * 0.62)) : height];
  };
  /** Gives a drawing its size. @param {Chart} chart */
  const fit = (chart) => {
    const [width, height] = ownSize(chart), [wide, tall] = chart.size;
    const [left, top, right, bottom] = chart.data.frame;
    chart.frame = [left, top, right + wide - width, bottom + tall - height];
    chart.svg.setAttribute("viewBox", `0 0 ${round(wide)} ${round(tall)}`);
    chart.svg.toggleAttribute("data-fit", wide !== width);
    const legend = chart.svg.querySelector(".legend");
    if (tall === height) legend?.removeAttribute("transform"); else legend?.setAttribute("transform", `translate(0 ${round(tall - height)})`);
  };
  /** Draws again what has room for another size. */
  const refit = () => {
    // First all are measured, then all are drawn: in turns, the browser would lay out the page for each.
    const sizes = charts.map(wanted);
    charts.forEach((chart, at) => {
      const [[wide, tall], [width, height]] = [sizes[at], chart.size];
      if (Math.abs(wide - width) < 8 && Math.abs(tall - height) < 8) return;
      chart.size = [wide, tall];
      draw(chart);
    });
    again();
  };

  /** Whether the script can draw a chart again; bars and matrices stay as the server drew them. @param {Data} data */
  const drawable = (data) => !data.rows && !data.x[0].categories && !data.y.categories && data.series.length > 0
    && data.series.every((series) => ["line", "points", "band", "area"].includes(series.kind));

  /** Which of its horizontal axes a chart shows. @param {Chart} chart */
  const axisOf = (chart) => Math.max(0, chart.data.x.findIndex((axis) => axis.label === shared.axis));
  /** @param {Series} series @param {number} axis */
  const placesOf = (series, axis) => series.x[axis] ?? series.x[0];

  /** Exponential mean with the bias of its beginning taken out, as TensorBoard's; gaps stay. @param {(number|null)[]} values */
  const smoothed = (values) => {
    const weight = shared.smoothing;
    let mean = 0, total = 0;
    return values.map((value) => {
      if (!known(value)) return null;
      mean = weight * mean + (1 - weight) * value;
      total = weight * total + (1 - weight);
      return mean / total;
    });
  };

  /** @param {Chart} chart @param {Series} series @param {(number|null)[]} heights @param {Scales} scale */
  const path = (chart, series, heights, scale) => {
    const [, top, right, bottom] = chart.frame;
    const places = placesOf(series, scale.axis);
    let text = "", gap = true;
    heights.forEach((height, index) => {
      const place = places[index];
      if (!known(height) || !known(place) || (scale.y.log && height <= 0) || (scale.x.log && place <= 0)) { gap = true; return; }
      const x = scale.x.at(place);
      if (x < chart.left - 1 || x > right + 1) { gap = true; return; }
      const y = Math.max(top, Math.min(bottom, scale.y.at(height)));
      text += `${gap ? "M" : "L"}${round(x)} ${round(y)}`;
      gap = false;
    });
    return text;
  };

  /** @param {Chart} chart @param {Series} series @param {Scales} scale */
  const ribbon = (chart, series, scale) => {
    const [, top, right, bottom] = chart.frame;
    const places = placesOf(series, scale.axis);
    /** @type {[string[], string[]]} */
    const [upper, lower] = [[], []];
    places.forEach((place, index) => {
      const low = series.low?.[index], high = series.high?.[index];
      if (!known(place) || !known(low) || !known(high) || (scale.x.log && place <= 0)) return;
      const x = scale.x.at(place);
      if (x < chart.left - 1 || x > right + 1) return;
      const up = (/** @type {number} */ value) => round(Math.max(top, Math.min(bottom, scale.y.log && value <= 0 ? bottom : scale.y.at(value))));
      upper.push(`${round(x)} ${up(high)}`);
      lower.push(`${round(x)} ${up(low)}`);
    });
    return upper.length > 1 ? `M${upper.concat(lower.reverse()).join("L")}z` : "";
  };

  /** @param {number} x @param {number} y */
  const dot = (x, y) => `M${round(x - 2.6)} ${round(y)}a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0 -5.2 0z`;

  /** The scales for what is visible. @param {Chart} chart @returns {Scales} */
  const scales = (chart) => {
    const { data } = chart;
    const axis = axisOf(chart);
    const visible = data.series.filter((series) => !chart.hidden.has(series.name));
    const [, top, right, bottom] = chart.frame;
    /** @type {[number[], number[]]} */
    const [across, up] = [[], []];
    for (const series of visible) {
      const places = placesOf(series, axis);
      places.forEach((place, index) => {
        if (!known(place) || (chart.logX && place <= 0)) return;
        across.push(place);
        if (chart.zoom && (place < chart.zoom[0] || place > chart.zoom[1])) return;
        for (const value of [series.y[index], series.low?.[index], series.high?.[index]]) if (known(value)) up.push(value);
      });
    }
    const y = fitted(up, { log: chart.logY, zero: data.y.zero && !chart.logY, range: chart.logY ? null : data.y.range }, bottom, top, (bottom - top) / 45);
    const most = Math.max(Math.abs(y.low), Math.abs(y.high));
    const widest = Math.max(...tickLabels(y.ticks, most).map((label) => label.length), 1);
    chart.left = Math.max(data.frame[0], widest * 7.4 + 14);
    const x = fitted(across, { log: chart.logX, zero: data.x[axis].zero, range: chart.zoom }, chart.left, right, (right - chart.left) / 70);
    return { x, y, axis };
  };

  /** @param {Chart} chart */
  const draw = (chart) => {
    const { data, plot } = chart;
    fit(chart);
    const [, top, right, bottom] = chart.frame;
    const scale = chart.scale = scales(chart);
    const { grip } = chart;
    for (const [name, value] of Object.entries({ x: chart.left, y: top, width: Math.max(0, right - chart.left), height: bottom - top })) grip.setAttribute(name, String(round(value)));
    plot.replaceChildren();
    const grid = plot.appendChild(shape("g", { class: "grid" }));
    const axes = plot.appendChild(shape("g", { class: "axis" }));
    const yMost = Math.max(Math.abs(scale.y.low), Math.abs(scale.y.high));
    const yLabels = tickLabels(scale.y.ticks, yMost);
    scale.y.ticks.forEach((tick, index) => {
      const y = round(scale.y.at(tick));
      grid.append(shape("path", { d: `M${round(chart.left)} ${y}H${right}` }));
      axes.append(shape("text", { class: "end", x: round(chart.left - 8), y: round(y + TEXT * 0.35) }, yLabels[index]));
    });
    axes.append(shape("path", { d: `M${round(chart.left)} ${bottom}H${right}` }));
    const xLabels = tickLabels(scale.x.ticks, Math.max(Math.abs(scale.x.low), Math.abs(scale.x.high)));
    let free = -Infinity;
    scale.x.ticks.forEach((tick, index) => {
      const x = scale.x.at(tick), half = xLabels[index].length * 3.8;
      axes.append(shape("path", { d: `M${round(x)} ${bottom}v4` }));
      if (x - half < free) return;
      free = x + half + 4;
      axes.append(shape("text", { class: "mid", x: round(x), y: round(bottom + TEXT + 5) }, xLabels[index]));
    });
    axes.append(shape("text", { class: "mid name", x: round((chart.left + right) / 2), y: round(bottom + TEXT * 2 + 10) }, caption(data.x[scale.axis])));
    axes.append(shape("text", { class: "name", x: 0, y: round(top - TEXT * 0.85) }, caption(data.y)));
    const order = ["band", "area", "points", "line"];
    const sorted = [...data.series].sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind));
    for (const series of sorted) {
      if (chart.hidden.has(series.name)) continue;
      const group = plot.appendChild(shape("g", { class: `series ${look(series.place)}` }));
      if (series.kind === "band" || series.kind === "area") {
        group.append(shape("path", { class: series.kind, d: ribbon(chart, series, scale) }));
      } else if (series.kind === "points") {
        const places = placesOf(series, scale.axis);
        const dots = series.y.map((y, index) => known(y) && known(places[index]) ? dot(scale.x.at(places[index] ?? 0), scale.y.at(y)) : "");
        group.append(shape("path", { class: "dot", d: dots.join("") }));
      } else {
        const faint = series.style === "faint" ? " faint" : "";
        const smooth = shared.smoothing > 0 && series.y.length > 3;
        group.append(shape("path", { class: `line${faint}${smooth ? " raw" : ""}`, d: path(chart, series, series.y, scale) }));
        if (smooth) group.append(shape("path", { class: `line smooth${faint}`, d: path(chart, series, smoothed(series.y), scale) }));
        if (series.style === "marked" && series.y.length <= 60) {
          const marks = path(chart, series, series.y, scale).split(/[ML]/).filter(Boolean).map((at) => dot(...(/** @type {[number, number]} */ (at.split(" ").map(Number)))));
          group.append(shape("path", { class: "spot", d: marks.join("") }));
        }
      }
    }
    if (scale.axis === 0) drawMarks(chart, scale);
    chart.svg.dataset.drawn = "yes";
  };

  /** @param {Chart} chart @param {Scales} scale */
  const drawMarks = (chart, scale) => {
    const [, top, right, bottom] = chart.frame;
    let free = caption(chart.data.y).length * 7.4 + 6;
    for (const [at, word] of chart.data.marks) {
      const x = scale.x.at(at);
      if (!(x >= chart.left && x <= right)) continue;
      chart.plot.append(shape("path", { class: word ? "mark loud" : "mark", d: `M${round(x)} ${top}V${bottom}` }));
      // To the right of its line, or to the left where it would leave the drawing.
      const width = word.length * 7.4 + 8;
      const start = x + width > chart.svg.viewBox.baseVal.width ? x - width : x;
      if (!word || start < free) continue;
      free = start + width;
      chart.plot.append(shape("text", { class: "value", x: round(start + 4), y: round(top - 4) }, word));
    }
  };

  // The shared cursor.

  /** The point of a series nearest to a place. @param {Series} series @param {number} axis @param {number} place */
  const nearest = (series, axis, place) => {
    const places = placesOf(series, axis);
    let best = -1, distance = Infinity;
    places.forEach((x, index) => {
      if (!known(x) || !known(series.y[index])) return;
      const away = Math.abs(x - place);
      if (away < distance) { distance = away; best = index; }
    });
    return best;
  };
  /** Whether a series' values are shown; a band belongs to its line. @param {Chart} chart @param {Series} series */
  const told = (chart, series) => series.kind !== "band" && !chart.hidden.has(series.name);

  /** The moment of a place in a chart, on every axis that the chart knows. @param {Chart} from @param {number} place @returns {Moment|null} */
  const momentOf = (from, place) => {
    /** @type {Moment} */
    const moment = {};
    const axis = axisOf(from);
    const lead = from.data.series.find((series) => told(from, series));
    if (!lead) return null;
    const index = nearest(lead, axis, place);
    from.data.x.forEach((one, at) => {
      const x = lead.x[at]?.[index];
      if (known(x)) moment[one.label] = x;
    });
    moment[from.data.x[axis].label] = place;
    return moment;
  };
  /** Where a moment is in a chart. @param {Chart} chart @param {Moment|null} moment */
  const placeOf = (chart, moment) => moment?.[chart.data.x[axisOf(chart)].label];
  /** Shows the values at one moment in every chart; all of them under the one that is pointed at. @param {Moment|null} moment */
  const show = (moment) => {
    for (const chart of charts) {
      const at = placeOf(chart, moment);
      if (known(at)) cursor(chart, at); else clear(chart);
      fill(chart, at);
    }
  };
  /** Shows what the pointer is at, or what is held, with the numbers of now. */
  const again = () => {
    if (pointer && !pointer.chart.svg.isConnected) pointer = null;
    show(pointer ? momentOf(pointer.chart, pointer.place) : held);
  };

  /** What the series of a chart are at a place, in the order of the legend. @param {Chart} chart @param {number} place @returns {Reading[]} */
  const readings = (chart, place) => {
    const axis = axisOf(chart);
    const scale = chart.scale ?? (chart.scale = scales(chart));
    /** @type {Reading[]} */
    const found = [];
    for (const series of chart.data.series) {
      if (!told(chart, series)) continue;
      const index = nearest(series, axis, place);
      const y = index < 0 ? null : series.y[index];
      if (!known(y)) continue;
      const [low, high] = [series.low?.[index], series.high?.[index]];
      const value = series.kind === "area" && known(low) && known(high) ? high - low : y;
      const name = series.part && series.part !== series.name ? [series.name, series.part].filter(Boolean).join(", ") : series.name;
      const smooth = shared.smoothing > 0 && series.kind === "line" && series.y.length > 3 ? smoothed(series.y)[index] : null;
      found.push({ name, place: series.place, value, smooth, places: chart.data.x.map((_, at) => placesOf(series, at)[index]), height: scale.y.at(y) });
    }
    return found;
  };

  /** @param {Chart} chart @param {number} place */
  const cursor = (chart, place) => {
    const scale = chart.scale ?? (chart.scale = scales(chart));
    const [, top, right, bottom] = chart.frame;
    const x = scale.x.at(place);
    clear(chart);
    if (!(x >= chart.left - 1 && x <= right + 1)) return;
    const all = readings(chart, place);
    chart.over.append(shape("path", { class: held && !pointer ? "cursor held" : "cursor", d: `M${round(x)} ${top}V${bottom}` }));
    for (const one of all) {
      const at = one.places[scale.axis];
      const group = chart.over.appendChild(shape("g", { class: look(one.place) }));
      if (known(at)) group.append(shape("path", { class: "spot", d: dot(scale.x.at(at), Math.max(top, Math.min(bottom, one.height))) }));
    }
    const axis = chart.data.x[scale.axis];
    const where = `${caption(axis)}: ${spot(axis, place)}`;
    chart.grip.setAttribute("aria-valuenow", String(place));
    chart.grip.setAttribute("aria-valuetext", [where, ...all.slice(0, 8).map((one) => `${one.name} ${words(one.value)}`)].join("; "));
    // What is held is in the table below; elsewhere the line is enough.
    if (chart.values || !pointer) return;
    if (pointer.chart === chart) list(chart, where, all); else tell(chart, where, all, x);
  };
  /** The values beside the cursor, as far as there is room. @param {Chart} chart @param {string} at @param {Reading[]} all @param {number} x */
  const tell = (chart, at, all, x) => {
    const { tip, frame: [, top] } = chart;
    tip.className = "tip";
    tip.replaceChildren(html("div", { class: "at" }, at));
    for (const one of all.slice(0, 12)) {
      const row = tip.appendChild(html("div", {}));
      row.append(html("span", { class: `tag c${one.place % COLOURS}` }), html("span", {}, one.name), html("b", {}, words(one.value)));
    }
    if (all.length > 12) tip.append(html("div", { class: "at" }, `and ${all.length - 12} more`));
    tip.hidden = false;
    const box = chart.svg.getBoundingClientRect(), figure = /** @type {HTMLElement} */ (tip.parentElement).getBoundingClientRect();
    const unit = box.width / chart.svg.viewBox.baseVal.width;
    const centre = box.left - figure.left + x * unit;
    tip.style.width = "";
    tip.style.top = `${box.top - figure.top + top * unit}px`;
    const beyond = centre + 12 + tip.offsetWidth > figure.width;
    tip.style.left = `${Math.max(2, beyond ? centre - 12 - tip.offsetWidth : centre + 12)}px`;
  };
  /** All values of the chart under the pointer, below it: of too many, those next to the pointer. @param {Chart} chart @param {string} at @param {Reading[]} all */
  const list = (chart, at, all) => {
    const { tip } = chart;
    const height = pointer?.height ?? null;
    const away = (/** @type {Reading} */ one) => Math.abs(one.height - (height ?? 0));
    const near = height === null ? all.slice(0, MOST_LISTED) : [...all].sort((a, b) => away(a) - away(b)).slice(0, MOST_LISTED);
    const chosen = height === null ? null : near[0];
    const shown = ordered(all.filter((one) => near.includes(one)), chart);
    const columns = columnsOf(chart);
    // Examples follow from steps; the table that is kept has them.
    const left = columns.indexOf("examples") > 2 ? columns.indexOf("examples") : -1;
    const table = html("table", {});
    table.appendChild(html("thead", {})).appendChild(html("tr", {})).append(...columns.map((name, column) => html("th", column ? { class: "num" } : {}, name)));
    const body = table.appendChild(html("tbody", {}));
    for (const one of shown) body.append(line(chart, one, one === chosen ? { class: "near" } : {}));
    if (left > 0) table.querySelectorAll(`tr > :nth-child(${left + 1})`).forEach((cell) => cell.remove());
    tip.className = "tip below";
    tip.replaceChildren(html("div", { class: "at" }, at), table, html("div", { class: "at" }, all.length > shown.length ? `and ${all.length - shown.length} more; a click or Enter keeps all of them here` : "a click or Enter keeps this table"));
    tip.hidden = false;
    const box = chart.svg.getBoundingClientRect(), figure = /** @type {HTMLElement} */ (tip.parentElement).getBoundingClientRect();
    tip.style.left = "-1px";
    tip.style.width = `${figure.width}px`;
    const above = box.bottom + tip.offsetHeight > innerHeight && box.top > tip.offsetHeight;
    tip.style.top = `${(above ? box.top - tip.offsetHeight : box.bottom) - figure.top}px`;
  };
  /** @param {Chart} chart */
  const clear = (chart) => {
    chart.over.replaceChildren();
    chart.tip.hidden = true;
  };

  // The table of values under a chart.

  /** Most rows of the table under the pointer, which cannot be scrolled. */
  const MOST_LISTED = 14;
  /** @param {Chart} chart */
  const isSmooth = (chart) => shared.smoothing > 0 && chart.data.series.some((series) => series.kind === "line" && series.y.length > 3);
  /** @param {Chart} chart */
  const columnsOf = (chart) => ["name", caption(chart.data.y), ...(isSmooth(chart) ? ["smoothed"] : []), ...chart.data.x.map(caption)];
  /** What a reading has in each column after its name. @param {Chart} chart @param {Reading} one */
  const figures = (chart, one) => [one.value, ...(isSmooth(chart) ? [one.smooth] : []), ...one.places];
  /** A row of a table of values. @param {Chart} chart @param {Reading} one @param {Record<string, string>} [attributes] */
  const line = (chart, one, attributes = {}) => {
    const row = html("tr", attributes);
    const head = row.appendChild(html("th", { scope: "row" }));
    head.append(html("span", { class: `tag c${one.place % COLOURS}` }), one.name);
    const all = figures(chart, one), before = all.length - chart.data.x.length;
    row.append(...all.map((value, at) => html("td", { class: "num" }, !known(value) ? "–" : at < before ? words(value) : spot(chart.data.x[at - before], value))));
    return row;
  };
  /** In the order that the reader has asked for. @param {Reading[]} all @param {Chart} chart */
  const ordered = (all, chart) => {
    const column = columnsOf(chart).indexOf(sorted.by);
    if (column < 0) return all;
    const collator = new Intl.Collator("en", { numeric: true });
    return [...all].sort((a, b) => {
      const [one, two] = [a, b].map((it) => column ? figures(chart, it)[column - 1] : it.name);
      if (typeof one === "string" || typeof two === "string") return collator.compare(String(one), String(two)) * (sorted.falling ? -1 : 1);
      // What is not known comes last, whichever way.
      if (!known(one) || !known(two)) return Number(!known(one)) - Number(!known(two));
      return sorted.falling ? two - one : one - two;
    });
  };
  /** The last place that a chart shows. @param {Chart} chart */
  const end = (chart) => Math.max(...chart.data.series.filter((series) => told(chart, series)).flatMap((series) => placesOf(series, axisOf(chart)).filter(known)));
  /** Writes the values at a place, or at the end, into the table under a chart. @param {Chart} chart @param {number|undefined} place */
  const fill = (chart, place) => {
    const { values } = chart;
    if (!values) return;
    const at = known(place) ? place : end(chart);
    const columns = columnsOf(chart), axis = chart.data.x[axisOf(chart)];
    values.at.textContent = `${caption(axis)}: ${spot(axis, at)}${known(place) ? "" : ", the last"}`;
    if (values.columns !== columns.join("\n")) {
      values.columns = columns.join("\n");
      const row = html("tr", {});
      columns.forEach((name, column) => {
        const head = /** @type {HTMLTableCellElement} */ (row.appendChild(html("th", column ? { scope: "col", class: "num" } : { scope: "col" }, name)));
        pressable(head, () => {
          sorted.falling = sorted.by === name ? !sorted.falling : false;
          sorted.by = name;
          again();
        });
      });
      values.table.tHead?.replaceChildren(row);
    }
    [...values.table.tHead?.rows[0].cells ?? []].forEach((head, column) => {
      if (columns[column] === sorted.by) head.setAttribute("aria-sort", sorted.falling ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
    });
    values.table.tBodies[0].replaceChildren(...ordered(readings(chart, at), chart).map((one) => line(chart, one)));
  };
  /** Opens or closes the table under a chart. @param {Chart} chart @param {boolean} open */
  const unfold = (chart, open) => {
    if (open === Boolean(chart.values)) return;
    chart.svg.closest("figure")?.querySelector("button[data-values]")?.setAttribute("aria-expanded", String(open));
    if (!open) {
      chart.values?.box.remove();
      chart.values = null;
      return;
    }
    const box = html("div", { class: "values", "data-own": "" });
    const at = html("span", {});
    const table = /** @type {HTMLTableElement} */ (html("table", { "aria-label": `Values: ${chart.data.title}`, "data-live": "" }));
    table.append(html("thead", {}), html("tbody", {}));
    const bar = html("div", { class: "actions", role: "group", "aria-label": "Table of values" });
    const name = `${fileName(chart.data.title)}-values`;
    bar.append(at);
    button(bar, "CSV", "Save these values as CSV", () => save(`${name}.csv`, new Blob([csv(cells(table))], { type: "text/csv" })));
    button(bar, "LaTeX", "Save these values as LaTeX", () => save(`${name}.tex`, new Blob([latex(table)], { type: "application/x-tex" })));
    const scroll = html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Values: ${chart.data.title}` });
    scroll.append(table);
    box.append(bar, scroll);
    (chart.svg.nextElementSibling ?? chart.svg).after(box);
    chart.values = { box, at, table, columns: "" };
    fill(chart, placeOf(chart, held) ?? undefined);
  };
  /** Holds a moment in all charts, with the values of the chart it was chosen in; or lets it go. @param {Chart} chart @param {Moment|null} moment */
  const hold = (chart, moment) => {
    held = moment;
    unfold(chart, moment !== null);
    again();
  };
  /** Lets go of what is held and closes all tables. */
  const release = () => {
    held = null;
    charts.forEach((chart) => unfold(chart, false));
    again();
  };

  // What the mouse does.

  /** The place of the horizontal axis under an event. @param {Chart} chart @param {MouseEvent} event */
  const under = (chart, event) => {
    const box = chart.svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * chart.svg.viewBox.baseVal.width / box.width;
    const scale = chart.scale ?? (chart.scale = scales(chart));
    return scale.x.back(Math.max(chart.left, Math.min(chart.frame[2], x)));
  };
  /** @param {Chart} chart @param {Event} event */
  const inPlot = (chart, event) => !(/** @type {Element} */ (event.target)).closest(".legend") && chart.svg.isConnected;

  /** @param {Chart} chart */
  const mouse = (chart) => {
    /** @type {number|null} */
    let from = null;
    chart.svg.addEventListener("pointermove", (event) => {
      if (!inPlot(chart, event)) return;
      const place = under(chart, event);
      const box = chart.svg.getBoundingClientRect();
      pointer = { chart, place, height: (event.clientY - box.top) * chart.svg.viewBox.baseVal.height / box.height };
      again();
      if (from === null || !chart.scale) return;
      const [, top, , bottom] = chart.frame;
      const [a, b] = [chart.scale.x.at(from), chart.scale.x.at(place)].sort((one, two) => one - two);
      chart.over.append(shape("rect", { class: "chosen", x: round(a), y: top, width: round(b - a), height: bottom - top }));
    });
    chart.svg.addEventListener("pointerleave", () => {
      if (from !== null) return;
      pointer = null;
      again();
    });
    chart.svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch" || !inPlot(chart, event)) return;
      from = under(chart, event);
      chart.svg.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    chart.svg.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const scale = chart.scale ?? scales(chart);
      const to = under(chart, event), start = from;
      from = pointer = null;
      if (Math.abs(scale.x.at(to) - scale.x.at(start)) >= 6) {
        chart.zoom = start < to ? [start, to] : [to, start];
        draw(chart);
        again();
        return;
      }
      click(chart, to);
    });
    // A finger that taps holds, too; one that scrolls does not.
    chart.svg.addEventListener("click", (event) => {
      if (/** @type {PointerEvent} */ (event).pointerType === "touch" && inPlot(chart, event)) click(chart, under(chart, event));
    });
    chart.svg.addEventListener("dblclick", () => { chart.zoom = null; draw(chart); });
  };
  /** Holds a place, or lets go of the one that is held there. @param {Chart} chart @param {number} place */
  const click = (chart, place) => {
    const scale = chart.scale ?? (chart.scale = scales(chart));
    const at = placeOf(chart, held);
    pointer = null;
    hold(chart, chart.values && known(at) && Math.abs(scale.x.at(at) - scale.x.at(place)) < 6 ? null : momentOf(chart, place));
  };

  /** What the keys do in a chart's plot, which is a slider for them. @param {Chart} chart */
  const keys = (chart) => {
    const { grip } = chart;
    /** The places of the points that the arrows go through. */
    const stops = () => {
      const scale = chart.scale ?? (chart.scale = scales(chart));
      const all = chart.data.series.filter((series) => told(chart, series)).map((series) => placesOf(series, scale.axis).filter(known));
      const longest = all.reduce((most, one) => one.length > most.length ? one : most, /** @type {number[]} */ ([]));
      return [...new Set(longest)].filter((place) => place >= scale.x.low && place <= scale.x.high && !(scale.x.log && place <= 0)).sort((a, b) => a - b);
    };
    const go = (/** @type {number} */ steps) => {
      const all = stops();
      if (!all.length) return;
      const now = pointer?.chart === chart ? pointer.place : placeOf(chart, held) ?? all[all.length - 1];
      let at = 0;
      all.forEach((place, index) => { if (Math.abs(place - now) < Math.abs(all[at] - now)) at = index; });
      at = Math.max(0, Math.min(all.length - 1, at + steps));
      grip.setAttribute("aria-valuemin", String(all[0]));
      grip.setAttribute("aria-valuemax", String(all[all.length - 1]));
      pointer = { chart, place: all[at], height: null };
      again();
    };
    grip.addEventListener("focus", () => { if (grip.matches(":focus-visible")) go(0); });
    grip.addEventListener("blur", () => { if (pointer?.chart === chart) { pointer = null; again(); } });
    grip.addEventListener("keydown", (event) => {
      const far = Math.max(1, Math.round(stops().length / 10));
      const steps = { ArrowLeft: -1, ArrowRight: 1, PageDown: -far, PageUp: far, Home: -Infinity, End: Infinity }[event.key];
      if (steps !== undefined) go(steps);
      else if (event.key === "Enter" || event.key === " ") click(chart, pointer?.place ?? end(chart));
      else return;
      event.preventDefault();
    });
  };

  /** @param {Chart} chart */
  const legend = (chart) => {
    const entries = chart.svg.querySelectorAll(".legend .entry");
    // With a slider and buttons inside, it is no longer one picture.
    chart.svg.setAttribute("role", "group");
    chart.svg.setAttribute("aria-label", chart.data.title);
    for (const entry of entries) {
      const name = /** @type {SVGElement} */ (entry).dataset.name ?? "";
      entry.setAttribute("tabindex", "0");
      entry.setAttribute("role", "button");
      entry.setAttribute("aria-label", `show ${name}`);
      const marked = () => {
        entry.classList.toggle("off", chart.hidden.has(name));
        entry.setAttribute("aria-pressed", String(!chart.hidden.has(name)));
      };
      const turn = () => {
        if (!chart.hidden.delete(name)) chart.hidden.add(name);
        marked();
        draw(chart);
        again();
      };
      marked();
      entry.addEventListener("click", turn);
      entry.addEventListener("keydown", (event) => {
        const key = /** @type {KeyboardEvent} */ (event).key;
        if (key === "Enter" || key === " ") { event.preventDefault(); turn(); }
      });
    }
  };

  // Which runs and which charts are shown, and which stay at the top.

  /** Names of runs that the reader has put away; in all charts at once. @type {Set<string>} */
  const away = new Set();
  /** What titles of charts must match. */
  let sought = "";
  /** What this browser remembers; a file, or a private window, forgets. @type {Set<string>} */
  const pins = new Set((() => { try { return JSON.parse(localStorage.getItem("paceline.pins") ?? "[]"); } catch { return []; } })());
  const keepPins = () => { try { localStorage.setItem("paceline.pins", JSON.stringify([...pins])); } catch { /* forgotten */ } };

  /** Names of the runs of a page: the first column of the tables of runs, as far as charts have series of that name. */
  const runNames = () => {
    const heads = [...document.querySelectorAll("main table")].flatMap((table) => table instanceof HTMLTableElement && table.tHead?.rows[0]?.cells[0]?.textContent?.trim() === "run" ? [...table.tBodies[0].rows] : []);
    const named = new Set(heads.map((row) => (row.cells[0]?.textContent ?? "").trim()));
    const drawn = new Map(charts.flatMap((chart) => chart.data.series.map((series) => /** @type {[string, number]} */ ([series.name, series.place]))));
    return [...named].filter((name) => drawn.has(name)).map((name) => ({ name, place: drawn.get(name) ?? 0 }));
  };
  /** Shows or puts away runs in every chart. @param {Iterable<string>} names @param {boolean} shown */
  const turnRuns = (names, shown) => {
    const turned = new Set(names);
    turned.forEach((name) => { if (shown) away.delete(name); else away.add(name); });
    for (const chart of charts) {
      if (!chart.data.series.some((series) => turned.has(series.name))) continue;
      turned.forEach((name) => { if (shown) chart.hidden.delete(name); else chart.hidden.add(name); });
      marked(chart);
      draw(chart);
    }
    again();
  };
  /** Shows in a legend what is hidden. @param {Chart} chart */
  const marked = (chart) => {
    for (const entry of chart.svg.querySelectorAll(".legend .entry")) {
      const off = chart.hidden.has(/** @type {SVGElement} */ (entry).dataset.name ?? "");
      entry.classList.toggle("off", off);
      entry.setAttribute("aria-pressed", String(!off));
    }
  };
  /** A list of runs with boxes to tick. @returns {HTMLElement|null} */
  const runPicker = () => {
    const names = runNames();
    if (names.length < 2) return null;
    const picker = html("details", { class: "picker" });
    const summary = picker.appendChild(html("summary", {}));
    const panel = picker.appendChild(html("div", { role: "group", "aria-label": "Runs in the charts" }));
    const told = () => { summary.textContent = `Runs: ${names.filter(({ name }) => !away.has(name)).length} of ${names.length}`; };
    const line = panel.appendChild(html("div", { class: "line" }));
    const find = /** @type {HTMLInputElement} */ (line.appendChild(html("input", { type: "search", placeholder: "Find runs", "aria-label": "Find runs", title: "A part of the name, or a regular expression: lr 0\\.0[13]|momentum" })));
    const boxes = names.map(({ name, place }) => {
      const label = html("label", {});
      const box = /** @type {HTMLInputElement} */ (label.appendChild(html("input", { type: "checkbox", "data-run": name })));
      box.checked = !away.has(name);
      box.addEventListener("change", () => { turnRuns([name], box.checked); told(); });
      label.append(html("span", { class: `tag c${place % COLOURS}` }), html("span", {}, name));
      return { name, box, label };
    });
    const matching = () => boxes.filter(({ label }) => !label.hidden);
    const all = (/** @type {boolean} */ shown) => { matching().forEach(({ box }) => { box.checked = shown; }); turnRuns(matching().map(({ name }) => name), shown); told(); };
    const said = complaint();
    find.addEventListener("input", () => {
      const holds = pattern(find.value, find, said);
      boxes.forEach(({ name, label }) => { label.hidden = !holds(name); });
    });
    button(line, "All", "Show the listed runs", () => all(true));
    button(line, "None", "Hide the listed runs", () => all(false));
    panel.append(said, ...boxes.map(({ label }) => label));
    told();
    return picker;
  };

  /** Where a field says what is wrong with what was typed. */
  const complaint = () => html("output", { class: "wrong" });
  /**
   * Whether a text matches: a regular expression, or, where it is none, a part of it; that is said beside the field.
   * @param {string} wanted @param {HTMLElement} [field] @param {HTMLElement} [said] @returns {(text: string) => boolean}
   */
  const pattern = (wanted, field, said) => {
    const has = (/** @type {string} */ text) => text.toLowerCase().includes(wanted.toLowerCase());
    const tell = (/** @type {string} */ words) => {
      field?.toggleAttribute("data-wrong", words !== "");
      if (words) field?.setAttribute("aria-invalid", "true"); else field?.removeAttribute("aria-invalid");
      if (said) said.textContent = words;
    };
    try {
      const found = new RegExp(wanted, "i");
      tell("");
      return (text) => found.test(text) || has(text);
    } catch (error) {
      tell(`not a regular expression (${reason(error)}): searched as plain text`);
      return has;
    }
  };
  /** Why a browser does not take a regular expression, without the expression. @param {unknown} error */
  const reason = (error) => (error instanceof Error ? error.message : "").split(": ").pop()?.toLowerCase() || "it cannot be read";
  /** @param {Element} figure */
  const titleOf = (figure) => figure.querySelector("h3")?.textContent ?? "";
  /** Shows only the charts whose titles match. */
  const seek = () => {
    const field = document.querySelector(".controls > input[name=find]"), said = document.querySelector(".controls > .wrong");
    const holds = pattern(sought, field instanceof HTMLElement ? field : undefined, said instanceof HTMLElement ? said : undefined);
    for (const grid of document.querySelectorAll(".figures")) {
      const figures = [...grid.querySelectorAll(":scope > figure")];
      figures.forEach((figure) => figure.toggleAttribute("data-unfound", sought !== "" && !holds(titleOf(figure))));
      grid.toggleAttribute("data-unfound", figures.length > 0 && figures.every((figure) => figure.hasAttribute("data-unfound")));
    }
  };

  /** A chart's name among all of a page: its part and its title. @param {Element} figure */
  const pinName = (figure) => {
    let at = figure.closest(".figures")?.previousElementSibling ?? null;
    while (at && at.localName !== "h2") at = at.previousElementSibling;
    return `${at?.textContent ?? ""}\n${titleOf(figure)}`;
  };
  /** A chart as the server drew it, to be shown in a second place. @param {Element} figure */
  const copyOf = (figure) => {
    const copy = /** @type {HTMLElement} */ (figure.cloneNode(true));
    copy.querySelectorAll("[data-own]").forEach((one) => one.remove());
    copy.querySelectorAll("svg[data-box]").forEach((svg) => {
      svg.setAttribute("viewBox", svg.getAttribute("data-box") ?? "");
      svg.querySelector(".legend")?.removeAttribute("transform");
    });
    [copy, ...copy.querySelectorAll("[data-live],[data-drawn],[data-unfound]")].forEach((one) => ["data-live", "data-drawn", "data-wide", "data-unfound", "data-box", "data-fit"].forEach((name) => one.removeAttribute(name)));
    return copy;
  };
  /** Puts what is pinned to the top of the page, and keeps it as new as what it shows. */
  const pin = () => {
    const originals = [...document.querySelectorAll("main .figures:not(.pinned) > figure")].filter((figure) => !own(figure)).map((figure) => ({ figure, name: pinName(figure) }));
    const wanted = originals.filter(({ name }) => pins.has(name));
    for (const { figure, name } of originals) figure.querySelector("button[data-pin]")?.setAttribute("aria-pressed", String(pins.has(name)));
    const there = document.querySelector(".pinned");
    if (!wanted.length) { there?.remove(); return; }
    const place = there ?? html("div", { class: "figures pinned", "data-own": "" });
    if (!there) {
      place.append(html("h2", {}, "Pinned"));
      const bar = document.querySelector(".controls");
      if (bar) bar.after(place); else document.querySelector("main .figures")?.before(place);
    }
    const known = new Map([...place.querySelectorAll("figure")].map((figure) => [figure.dataset.pinned ?? "", figure]));
    for (const { figure, name } of wanted) {
      const copy = copyOf(figure);
      copy.dataset.pinned = name;
      const old = known.get(name);
      known.delete(name);
      if (old) morph(old, copy); else place.append(copy);
    }
    known.forEach((figure) => figure.remove());
    charts = charts.filter((chart) => chart.svg.isConnected);
    place.querySelectorAll("svg.chart").forEach((svg) => enhance(/** @type {SVGSVGElement} */ (svg)));
    place.querySelectorAll("button[data-pin]").forEach((one) => one.setAttribute("aria-pressed", "true"));
  };

  // Weights of any tensor.

  /** What the page carries of tensors: for each and each run, shares of its weights by bucket and evaluation, two letters each. @typedef {{rows: number, runs: {name: string, steps: number[]}[], tensors: {name: string, size: number, low: number, high: number, most: number, maps: string[]}[]}} Tensors */
  const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  /** Draws one tensor of one run over time, as the server draws the largest. @param {Tensors} all @param {number} at @param {number} run */
  const spread = (all, at, run) => {
    const { rows, runs } = all, { name, low, high, most, maps } = all.tensors[at], { steps } = runs[run];
    const [width, left, top, tall] = [380, 60, 20.8, 220 / rows], wide = (width - left - 4) / steps.length, bottom = top + tall * rows;
    const title = `How is ${name} spread?`;
    const svg = shape("svg", { class: "chart matrix", viewBox: `0 0 ${width} ${round(bottom + TEXT * 5)}`, role: "img" });
    const bucket = (high - low) / rows, digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(bucket))));
    const middle = (/** @type {number} */ row) => (high - bucket * (row + 0.5)).toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "\u2212");
    /** @type {(string|number|null)[][]} */
    const table = [["weight / step", ...steps.map((step) => `step ${step}`)]];
    const cells = shape("g", { class: "c0" });
    for (let row = 0; row < rows; row++) {
      const y = top + tall * row;
      if (row % 2 === 0) svg.append(shape("text", { class: "end", x: left - 6, y: round(y + tall / 2 + TEXT * 0.35) }, middle(row)));
      const values = steps.map((_, column) => {
        const place = 2 * (row * steps.length + column);
        const share = (LETTERS.indexOf(maps[run][place]) * 64 + LETTERS.indexOf(maps[run][place + 1])) / 4095 * most;
        return share > 0 ? share : null;
      });
      table.push([middle(row), ...values.map((share) => share === null ? null : Number(share.toPrecision(4)))]);
      values.forEach((share, column) => {
        if (share === null) return;
        const cell = cells.appendChild(shape("rect", { class: `cell s${Math.round(share / most * 9)}`, x: round(left + wide * column), y: round(y), width: round(Math.max(0.5, wide - (steps.length > 30 ? 0 : 1))), height: round(tall - 1) }));
        cell.append(shape("title", {}, `${middle(row)}, step ${steps[column]}: ${words(share)} % of the weights`));
      });
    }
    let free = -Infinity;
    steps.forEach((step, column) => {
      const half = String(step).length * 3.8, x = Math.min(left + wide * (column + 0.5), width - half);
      if (x - half < free) return;
      free = x + half + 12;
      svg.append(shape("text", { class: "mid", x: round(x), y: round(bottom + TEXT + 4) }, String(step)));
    });
    const key = shape("g", { class: "c0" });
    key.append(shape("text", { x: left, y: round(bottom + TEXT * 3.6 + 10) }, "0"));
    for (let shade = 0; shade <= 9; shade++) key.append(shape("rect", { class: `cell s${shade}`, x: left + 14 + 11 * shade, y: round(bottom + TEXT * 3.6), width: 11, height: 11 }));
    key.append(shape("text", { x: left + 130, y: round(bottom + TEXT * 3.6 + 10) }, `${words(Number(most.toPrecision(3)))} % of the weights`));
    svg.append(cells, key, shape("text", { class: "name", x: 0, y: TEXT }, "weight"), shape("text", { class: "mid name", x: (left + width) / 2, y: round(bottom + TEXT * 2 + 8) }, "step"));
    svg.prepend(shape("title", {}, title), shape("metadata", {}, JSON.stringify({ title, rows: table })));
    const figure = html("figure", { "data-own": "" });
    const heading = html("figcaption", {});
    heading.append(html("h3", {}, runs.length > 1 ? `${title} ${runs[run].name}` : title));
    figure.append(heading, svg);
    return figure;
  };
  /** Lets the reader choose a tensor where the page carries more than are drawn. @param {ParentNode} root */
  const tensors = (root) => root.querySelectorAll(".tensors").forEach((carrier) => {
    const grid = carrier.previousElementSibling;
    if (!(grid instanceof HTMLElement) || !(carrier instanceof HTMLElement)) return;
    const text = carrier.textContent ?? "";
    if (carrier.dataset.live === text) return;
    carrier.dataset.live = text;
    const all = /** @type {Tensors} */ (JSON.parse(text));
    const before = grid.previousElementSibling?.classList.contains("chooser") ? grid.previousElementSibling : null;
    const chosen = before?.querySelector("select")?.value ?? "";
    before?.remove();
    const bar = html("div", { class: "chooser", "data-own": "" });
    const label = bar.appendChild(html("label", {}, "Tensor "));
    const choice = /** @type {HTMLSelectElement} */ (label.appendChild(html("select", { name: "tensor" })));
    choice.append(html("option", { value: "" }, "the largest"), ...all.tensors.map(({ name, size }) => html("option", { value: name }, `${name} (${size.toLocaleString("en-US")})`)));
    const draw = () => {
      const at = all.tensors.findIndex(({ name }) => name === choice.value);
      grid.querySelectorAll(":scope > figure").forEach((figure) => { if (own(figure)) figure.remove(); else figure.toggleAttribute("data-aside", at >= 0); });
      if (at >= 0) all.runs.forEach((_, run) => { if (all.tensors[at].maps[run]) grid.append(spread(all, at, run)); });
      grid.querySelectorAll("figure svg.chart").forEach((svg) => enhance(/** @type {SVGSVGElement} */ (svg)));
      seek();
    };
    choice.value = all.tensors.some(({ name }) => name === chosen) ? chosen : "";
    choice.addEventListener("change", draw);
    grid.before(bar);
    if (choice.value || chosen) draw();
  });

  // Files.

  /** @param {string} name @param {Blob} blob */
  const save = (name, blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  /** @param {string} title */
  const fileName = (title) => title.toLowerCase().replace(/[^a-z0-9.]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "chart";
  const DRAWN = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin", "stroke-linecap", "font-family", "font-size", "font-weight", "text-anchor"];
  /** A drawing with its looks inside, which needs no style sheet. @param {SVGSVGElement} svg */
  const standalone = (svg) => {
    const copy = /** @type {SVGSVGElement} */ (svg.cloneNode(true));
    const originals = svg.querySelectorAll("*"), copies = copy.querySelectorAll("*");
    originals.forEach((original, index) => {
      if (!["path", "rect", "text", "circle"].includes(original.localName)) return;
      const style = getComputedStyle(original);
      for (const name of DRAWN) {
        const value = style.getPropertyValue(name);
        if (value && value !== "none 0px") copies[index].setAttribute(name, value);
      }
    });
    copy.querySelectorAll("[data-own]").forEach((one) => one.remove());
    const { width, height } = svg.viewBox.baseVal;
    copy.setAttribute("xmlns", NS);
    copy.setAttribute("width", String(width));
    copy.setAttribute("height", String(height));
    const paper = getComputedStyle(svg.closest("figure") ?? document.body).backgroundColor;
    copy.prepend(shape("rect", { width: "100%", height: "100%", fill: paper }));
    return new XMLSerializer().serializeToString(copy);
  };
  /** @param {SVGSVGElement} svg @returns {Promise<Blob|null>} */
  const png = async (svg) => {
    const { width, height } = svg.viewBox.baseVal;
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(svg))}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [Math.round(width * 3), Math.round(height * 3)];
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  };
  /** A cell of a CSV file (RFC 4180) that no spreadsheet takes for a formula. @param {string|number|null|undefined} value */
  const cell = (value) => {
    let text = value === null || value === undefined ? "" : String(value);
    if (/^[=@\t\r]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  /** @param {(string|number|null|undefined)[][]} rows */
  const csv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
  /** The numbers of a chart, one row for each point. @param {Data} data */
  const numbers = (data) => {
    if (data.rows) return csv(data.rows);
    const spans = data.series.some((series) => series.low);
    const rows = [["series", "part", ...data.x.map(caption), caption(data.y), ...(spans ? ["low", "high"] : [])]];
    for (const series of data.series) {
      series.y.forEach((y, index) => {
        /** @type {(string|number|null|undefined)[]} */
        const row = [series.name, series.part, ...data.x.map((axis, at) => {
          const x = series.x[at]?.[index];
          return axis.categories && known(x) ? axis.categories[x] : x;
        }), y];
        if (spans) row.push(series.low?.[index], series.high?.[index]);
        rows.push(/** @type {string[]} */ (row));
      });
    }
    return csv(rows);
  };

  /** @param {HTMLElement} bar @param {string} text @param {string} title @param {() => void} act @returns {HTMLButtonElement} */
  const button = (bar, text, title, act) => {
    const made = /** @type {HTMLButtonElement} */ (html("button", { type: "button", title, "aria-label": title }, text));
    made.addEventListener("click", act);
    bar.append(made);
    return made;
  };
  /** The numbers that a drawing carries. @param {SVGSVGElement} svg @returns {Data|null} */
  const carried = (svg) => {
    const text = svg.querySelector("metadata")?.textContent;
    return text ? JSON.parse(text) : null;
  };
  /** @param {SVGSVGElement} svg @param {HTMLElement} bar */
  const files = (svg, bar) => {
    const title = svg.querySelector("title")?.textContent ?? "chart";
    button(bar, "SVG", "Save as SVG", () => save(`${fileName(title)}.svg`, new Blob([standalone(svg)], { type: "image/svg+xml" })));
    button(bar, "PNG", "Save as PNG", async () => {
      const blob = await png(svg);
      if (blob) save(`${fileName(title)}.png`, blob);
    });
    // Read when they are wanted: the drawing may have got new ones.
    const now = () => { const data = carried(svg); return data ? numbers(data) : ""; };
    if (carried(svg)) button(bar, "CSV", "Save the numbers as CSV", () => save(`${fileName(title)}.csv`, new Blob([now()], { type: "text/csv" })));
  };

  // Tables.

  /** What a cell is sorted by: its number where it has one. @param {HTMLTableRowElement} row @param {number} column */
  const key = (row, column) => {
    const text = (row.cells[column]?.textContent ?? "").trim();
    const number = Number.parseFloat(text.replaceAll(",", "").replace("\u2212", "-"));
    return { text, number: /^[\d.,+\-\u2212]/.test(text) && Number.isFinite(number) ? number : null };
  };
  /** @param {HTMLTableElement} table @param {number} column */
  const sort = (table, column) => {
    const heads = [...table.tHead?.rows[0]?.cells ?? []];
    order(table, column, heads[column].getAttribute("aria-sort") === "ascending");
  };
  /** @param {HTMLTableElement} table @param {number} column @param {boolean} falling */
  const order = (table, column, falling) => {
    const heads = [...table.tHead?.rows[0]?.cells ?? []];
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[column].setAttribute("aria-sort", falling ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, ...key(row, column) }));
    const words = new Intl.Collator("en", { numeric: true });
    rows.sort((a, b) => {
      // What is not known comes last, whichever way.
      const gap = Number(a.text === "–" || a.text === "") - Number(b.text === "–" || b.text === "");
      if (gap !== 0) return gap;
      const way = a.number !== null && b.number !== null ? a.number - b.number : words.compare(a.text, b.text);
      return falling ? -way : way;
    });
    body.append(...rows.map(({ row }) => row));
  };
  /** @param {Element} head */
  const heading = (head) => {
    const unit = head.querySelector("small")?.textContent ?? "";
    const name = [...head.childNodes].filter((node) => node.nodeName !== "SMALL").map((node) => node.textContent).join("").trim();
    return unit ? `${name} (${unit})` : name;
  };
  /** @param {HTMLTableElement} table */
  const cells = (table) => [
    [...table.tHead?.rows[0]?.cells ?? []].map(heading),
    ...[...table.tBodies[0].rows].map((row) => [...row.cells].map((one) => (one.textContent ?? "").trim())),
  ];
  /** @param {string} text */
  const tex = (text) => text.replace(/[\\{}$&#%_~^]/g, (sign) => ({ "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" })[sign] ?? `\\${sign}`)
    .replaceAll("–", "--").replaceAll("\u2212", "$-$").replaceAll("\u00d7", "$\\times$");
  /** A table for a paper, with the rules of the booktabs package. @param {HTMLTableElement} table */
  const latex = (table) => {
    const [head, ...rows] = cells(table);
    const align = [...table.tHead?.rows[0]?.cells ?? []].map((one) => one.classList.contains("num") ? "r" : "l").join("");
    const line = (/** @type {string[]} */ row) => `  ${row.map(tex).join(" & ")} \\\\`;
    return [`\\begin{tabular}{${align}}`, "  \\toprule", line(head), "  \\midrule", ...rows.map(line), "  \\bottomrule", "\\end{tabular}", ""].join("\n");
  };
  /** @param {HTMLTableCellElement} head */
  const sortable = (head) => {
    head.tabIndex = 0;
    head.title = "Sort";
  };
  /** A heading that sorts, by mouse and by keyboard. @param {HTMLTableCellElement} head @param {() => void} act */
  const pressable = (head, act) => {
    sortable(head);
    head.addEventListener("click", act);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); } });
  };
  /** @param {HTMLTableElement} table */
  const enhanceTable = (table) => {
    if (table.dataset.live || !table.tHead || !table.tBodies[0]) return;
    table.dataset.live = "yes";
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      pressable(head, () => sort(table, column));
    });
    const bar = html("div", { class: "actions", role: "group", "aria-label": "Table", "data-own": "" });
    const name = fileName(table.caption?.textContent ?? "table");
    button(bar, "CSV", "Save the table as CSV", () => save(`${name}.csv`, new Blob([csv(cells(table))], { type: "text/csv" })));
    button(bar, "LaTeX", "Save the table as LaTeX", () => save(`${name}.tex`, new Blob([latex(table)], { type: "application/x-tex" })));
    (table.closest(".scroll") ?? table).after(bar);
  };

  // Start.

  /** @param {SVGSVGElement} svg */
  const enhance = (svg) => {
    const figure = svg.closest("figure");
    if (!figure || svg.dataset.live) return;
    svg.dataset.live = "yes";
    const bar = html("div", { class: "actions", role: "group", "aria-label": "Chart", "data-own": "" });
    const data = carried(svg);
    const plot = /** @type {SVGGElement|null} */ (svg.querySelector("g.plot"));
    if (data && plot && drawable(data)) {
      const tip = html("div", { class: "tip", "data-own": "", "aria-hidden": "true" });
      tip.hidden = true;
      figure.append(tip);
      const over = /** @type {SVGGElement} */ (svg.appendChild(shape("g", { class: "over", "data-own": "" })));
      const grip = /** @type {SVGRectElement} */ (svg.appendChild(shape("rect", { class: "grip", "data-own": "", tabindex: 0, role: "slider", "aria-label": `Cursor: ${data.title}`, "aria-valuenow": 0, "aria-valuemin": 0, "aria-valuemax": 0,
        x: data.frame[0], y: data.frame[1], width: data.frame[2] - data.frame[0], height: data.frame[3] - data.frame[1] })));
      svg.dataset.box = svg.getAttribute("viewBox") ?? "";
      /** @type {Chart} */
      const chart = { svg, plot, over, data, left: data.frame[0], hidden: new Set(), zoom: null, logX: data.x[0].log, logY: data.y.log, scale: null, tip, grip, values: null, frame: data.frame, size: [svg.viewBox.baseVal.width, svg.viewBox.baseVal.height],
        made: svg.querySelector("metadata")?.textContent ?? "", entries: svg.querySelector(".legend")?.outerHTML ?? "" };
      charts.push(chart);
      mouse(chart);
      keys(chart);
      away.forEach((name) => chart.hidden.add(name));
      legend(chart);
      // A copy, or a chart that came while runs were put away, is drawn as the reader has chosen.
      if (figure.dataset.pinned !== undefined || away.size) draw(chart);
      const toggles = /** @type {["logX"|"logY", string][]} */ ([["logY", "log y"], ["logX", "log x"]]);
      for (const [which, name] of toggles) {
        // Shares of a whole have no use for a logarithm.
        if (which === "logY" && data.series.some((series) => series.kind === "area")) continue;
        const toggle = button(bar, name, `Logarithmic ${name.slice(4)} axis`, () => {
          chart[which] = !chart[which];
          toggle.setAttribute("aria-pressed", String(chart[which]));
          draw(chart);
          again();
        });
        toggle.setAttribute("aria-pressed", String(chart[which]));
      }
      const values = button(bar, "Values", "Table of all values at the cursor", () => { unfold(chart, !chart.values); again(); });
      values.dataset.values = "";
      values.setAttribute("aria-expanded", "false");
    }
    files(svg, bar);
    const wide = button(bar, "Enlarge", "As wide as the page", () => {
      const is = !("wide" in figure.dataset);
      if (is) figure.dataset.wide = ""; else delete figure.dataset.wide;
      wide.setAttribute("aria-pressed", String(is));
      refit();
    });
    wide.setAttribute("aria-pressed", "false");
    if (own(figure)) { svg.after(bar); return; }
    const pinned = button(bar, "Pin", "Keep at the top of the page", () => {
      const name = figure.dataset.pinned ?? pinName(figure);
      if (!pins.delete(name)) pins.add(name);
      keepPins();
      pin();
      seek();
    });
    pinned.dataset.pin = "";
    pinned.setAttribute("aria-pressed", "false");
    svg.after(bar);
  };

  /** The controls that all charts share. @param {ParentNode} root */
  const controls = (root) => {
    const first = root.querySelector(".figures:not(.pinned) > figure")?.closest(".figures");
    const there = document.querySelector(".controls");
    if (!first) { there?.remove(); return; }
    const names = [...new Set(charts.filter((chart) => chart.data.x.length > 1).flatMap((chart) => chart.data.x.map((axis) => axis.label)))];
    const lines = charts.some((chart) => chart.data.series.some((series) => series.kind === "line"));
    const made = [...names, ...runNames().map(({ name }) => name)].join("\n");
    if (there instanceof HTMLElement && there.dataset.made === made) return;
    there?.remove();
    if (!lines) return;
    const bar = html("div", { class: "controls", "data-own": "", "data-made": made });
    if (names.length > 1) {
      const label = bar.appendChild(html("label", {}, "x axis "));
      const choice = /** @type {HTMLSelectElement} */ (html("select", { name: "axis" }));
      names.forEach((name) => choice.append(html("option", { value: name }, name)));
      choice.value = shared.axis;
      choice.addEventListener("change", () => {
        shared.axis = choice.value;
        charts.forEach((chart) => {
          if (chart.data.x.length < 2) return;
          chart.zoom = null;
          draw(chart);
        });
        again();
      });
      label.append(choice);
    }
    const label = bar.appendChild(html("label", {}, "smoothing "));
    const range = /** @type {HTMLInputElement} */ (html("input", { type: "range", name: "smoothing", min: "0", max: "0.99", step: "0.01", value: String(shared.smoothing) }));
    const shown = html("output", {}, words(shared.smoothing));
    range.addEventListener("input", () => {
      shared.smoothing = Number(range.value);
      shown.textContent = words(shared.smoothing);
      charts.forEach((chart) => { if (chart.data.series.some((series) => series.kind === "line")) draw(chart); });
      again();
    });
    label.append(range, shown);
    const picker = runPicker();
    if (picker) bar.append(picker);
    const find = /** @type {HTMLInputElement} */ (html("input", { type: "search", name: "find", placeholder: "Find charts", "aria-label": "Find charts", title: "A part of the title, or a regular expression: loss|right" }));
    find.value = sought;
    find.addEventListener("input", () => { sought = find.value.trim(); seek(); refit(); });
    bar.append(find, complaint());
    bar.append(html("span", { class: "hint" }, "Drag to zoom, double click to reset, click to keep the values."));
    first.before(bar);
  };

  // New content.

  /** What the script added, which is not part of what the server sends. @param {Node} node */
  const own = (node) => node instanceof Element && node.hasAttribute("data-own");
  /** What tells a part of a page from those beside it. @param {Node} node */
  const signature = (node) => {
    if (!(node instanceof Element)) return node.nodeName;
    if (node.localName === "figure") return `figure ${node.querySelector("h3")?.textContent}`;
    if (/^h[1-6]$/.test(node.localName)) return `${node.localName} ${node.textContent}`;
    return `${node.localName} ${node instanceof SVGElement ? node.getAttribute("class") : node.classList[0] ?? ""}`;
  };
  /**
   * For each new part, the old one that it takes the place of: as many as possible, in their order.
   * @param {Node[]} olds @param {Node[]} news @returns {(Node|null)[]}
   */
  const partners = (olds, news) => {
    const [a, b] = [olds.map(signature), news.map(signature)];
    /** @type {(Node|null)[]} */
    const found = news.map(() => null);
    let head = 0, tail = 0;
    while (head < a.length && head < b.length && a[head] === b[head]) { found[head] = olds[head]; head++; }
    while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) {
      found[b.length - 1 - tail] = olds[a.length - 1 - tail];
      tail++;
    }
    const [rows, columns] = [a.length - head - tail, b.length - head - tail];
    if (rows * columns === 0 || rows * columns > 1e6) return found;
    // The longest common subsequence of what is between; `most` from a pair to the end.
    const most = Array.from({ length: rows + 1 }, () => new Uint32Array(columns + 1));
    for (let i = rows - 1; i >= 0; i--) {
      for (let j = columns - 1; j >= 0; j--) {
        most[i][j] = a[head + i] === b[head + j] ? most[i + 1][j + 1] + 1 : Math.max(most[i + 1][j], most[i][j + 1]);
      }
    }
    for (let i = 0, j = 0; i < rows && j < columns;) {
      if (a[head + i] === b[head + j]) { found[head + j] = olds[head + i]; i++; j++; }
      else if (most[i + 1][j] >= most[i][j + 1]) i++;
      else j++;
    }
    return found;
  };
  /** Takes a part away, with what the script added for it. @param {Node} node */
  const drop = (node) => {
    if (node instanceof SVGElement && node.dataset.live) node.parentElement?.querySelectorAll(":scope > [data-own]").forEach((one) => one.remove());
    const after = node instanceof Element ? node.nextElementSibling : null;
    if (after?.classList.contains("actions") && own(after)) after.remove();
    node.parentNode?.removeChild(node);
  };
  /** Gives a chart its new numbers; zoom, axes and hidden runs stay. @param {Chart} chart @param {Element} made @param {Data} data */
  const renew = (chart, made, data) => {
    const { svg } = chart;
    const [text, entries] = [made.querySelector("metadata")?.textContent ?? "", made.querySelector(".legend")?.outerHTML ?? ""];
    if (chart.made === text && chart.entries === entries) return;
    [chart.made, chart.data] = [text, data];
    const before = ownSize(chart);
    svg.dataset.box = made.getAttribute("viewBox") ?? svg.dataset.box;
    const now = ownSize(chart);
    chart.size = [chart.size[0] + now[0] - before[0], chart.size[1] + now[1] - before[1]];
    for (const name of ["title", "desc", "metadata"]) {
      const [old, now] = [svg.querySelector(`:scope > ${name}`), made.querySelector(`:scope > ${name}`)];
      if (old && now) old.textContent = now.textContent;
    }
    if (chart.entries !== entries) {
      chart.entries = entries;
      svg.querySelector(".legend")?.remove();
      const fresh = made.querySelector(".legend");
      if (fresh) chart.plot.after(fresh);
      legend(chart);
    }
    draw(chart);
  };
  /** Sorts a new table as the reader has sorted the old one. @param {HTMLTableElement} old @param {HTMLTableElement} made */
  const sortedLike = (old, made) => {
    const [olds, news] = [old, made].map((table) => [...table.tHead?.rows[0]?.cells ?? []]);
    made.dataset.live = "yes";
    news.forEach(sortable);
    const column = olds.findIndex((head) => head.hasAttribute("aria-sort"));
    if (column >= 0 && olds.length === news.length) order(made, column, olds[column].getAttribute("aria-sort") === "descending");
  };
  /** What the reader's own doing sets, which new content does not take back. @param {Element} element @param {string} name */
  const kept = (element, name) => ["data-live", "data-drawn", "data-wide", "data-unfound", "data-aside", "data-box", "data-fit"].includes(name) || (name === "open" && element.localName === "details");

  /**
   * Makes one tree like another and keeps every node that is the same: what is selected, focused, scrolled, zoomed, sorted or
   * unfolded stays so.
   * @param {Element|ChildNode} old @param {Element|ChildNode} made
   */
  const morph = (old, made) => {
    if (!(old instanceof Element) || !(made instanceof Element) || old.nodeName !== made.nodeName) {
      if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName) old.replaceWith(made);
      else if (old.nodeValue !== made.nodeValue) old.nodeValue = made.nodeValue;
      return;
    }
    if (old.isEqualNode(made)) return;
    const chart = charts.find((one) => one.svg === old);
    const data = chart ? carried(/** @type {SVGSVGElement} */ (made)) : null;
    if (chart && data && drawable(data)) { renew(chart, made, data); return; }
    if (old instanceof HTMLTableElement && made instanceof HTMLTableElement && old.dataset.live) sortedLike(old, made);
    for (const { name } of [...old.attributes]) if (!made.hasAttribute(name) && !kept(old, name)) old.removeAttribute(name);
    for (const { name, value } of [...made.attributes]) {
      // As an attribute, a page's policy refuses it.
      if (name === "style" && old instanceof HTMLElement) old.style.cssText = value;
      else if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const [olds, news] = [[...old.childNodes].filter((node) => !own(node)), [...made.childNodes]];
    const found = partners(olds, news);
    const staying = new Set(found);
    olds.forEach((node) => { if (!staying.has(node)) drop(node); });
    /** The place after the last part that is in its place. @type {ChildNode|null} */
    let at = old.firstChild;
    news.forEach((node, index) => {
      const partner = /** @type {ChildNode|null} */ (found[index]);
      if (!partner) { old.insertBefore(node, at); return; }
      at = partner.nextSibling;
      while (at && own(at)) at = at.nextSibling;
      morph(partner, node);
    });
  };

  /** Makes what is below an element workable; again after new content has come. @param {ParentNode} root */
  const start = (root) => {
    charts = charts.filter((chart) => chart.svg.isConnected);
    root.querySelectorAll("svg.chart").forEach((svg) => enhance(/** @type {SVGSVGElement} */ (svg)));
    root.querySelectorAll("table").forEach((table) => enhanceTable(table));
    tensors(root);
    controls(root);
    pin();
    seek();
    // The numbers under a resting pointer are the new ones.
    refit();
  };
  addEventListener("resize", refit);
  document.addEventListener("toggle", refit, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && (held || charts.some((chart) => chart.values))) release(); });
  const paper = matchMedia("print");
  for (const [name, is] of /** @type {["beforeprint"|"afterprint", boolean][]} */ ([["beforeprint", true], ["afterprint", false]])) addEventListener(name, () => { onPaper = is; refit(); });
  paper.addEventListener("change", () => { onPaper = paper.matches; refit(); });
  // For pages that bring new content later, and for tests.
  Object.assign(window, { pacelineCharts: { start, morph, numbers, latex, standalone, png } });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => start(document));
  else start(document);
})();
