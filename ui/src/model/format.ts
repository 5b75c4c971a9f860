// Numbers and names as people read them. All pure.

/** Three significant digits but no more than four after the point, no trailing zeros; the same rule as number() in report/round.go. */
export function num(x: number): string {
  const a = Math.abs(x)
  if (a >= 100) return x.toFixed(0)
  if (a < 5e-5) return '0'
  const s = x.toFixed(Math.min(4, 2 - Math.floor(Math.log10(a))))
  return s.includes('.') ? s.replace(/\.?0+$/, '') : s
}

/** A value that may be missing, with its unit; a few thousandths of a second as milliseconds, also where they are a rate of seconds. */
export function value(x: number | null | undefined, unit = ''): string {
  if (x === null || x === undefined) return '–'
  if ((unit === 's' || unit.startsWith('s/')) && x !== 0 && Math.abs(x) < 0.01) return `${num(1000 * x)} m${unit}`
  return unit ? `${num(x)} ${unit}` : num(x)
}

export function percent(x: number): string {
  const p = 100 * x
  return `${p > 0 && p < 10 ? p.toFixed(1) : p.toFixed(0)} %`
}

/** Seconds on an axis or in a sentence: 90 → 1m30s. */
export function duration(s: number): string {
  if (s < 60) return `${num(s)} s`
  const m = Math.floor(s / 60)
  const rest = Math.round(s - 60 * m)
  if (m < 60) return rest ? `${m}m${String(rest).padStart(2, '0')}s` : `${m}m`
  return `${Math.floor(m / 60)}h${String(m % 60).padStart(2, '0')}m`
}

/** The moment in UTC, the same on every reader's machine. */
export function moment(iso: string): string {
  const m = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)/.exec(iso)
  return m && !iso.startsWith('0001') ? `${m[1]} ${m[2]} UTC` : ''
}

/** Two digits: a factor of one run each is no better known. */
export const factor = (r: number): string => (r >= 10 ? r.toFixed(0) : r.toFixed(1))

/** How a value moved against its baseline: ×2.6 up, −38 % down, or nothing to say. */
export function change(from: number | null, to: number | null): string {
  if (from === null || to === null || from <= 0) return ''
  const r = to / from
  if (r >= 2) return `×${factor(r)}`
  const p = Math.round(100 * (r - 1))
  return p === 0 ? '±0 %' : p > 0 ? `+${p} %` : `−${-p} %`
}

/** A Go function's name, split after its import path: [path/, pkg.Func]. */
export function splitFunction(name: string): [string, string] {
  // A type argument may hold slashes; only those before it separate packages.
  const end = name.search(/[[(]/)
  const cut = name.lastIndexOf('/', end < 0 ? undefined : end)
  return [name.slice(0, cut + 1), name.slice(cut + 1)]
}

/** The first sentence, and what comes after it; a dot within a number or a name ends none. */
export function firstSentence(text: string): [string, string] {
  const m = /[.!?]\s+/.exec(text)
  return m ? [text.slice(0, m.index + 1), text.slice(m.index + m[0].length)] : [text, '']
}
