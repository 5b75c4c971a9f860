// The fragment of an address. All pure.
import type { Range } from './flame/tree.ts'

export interface Address {
  section: string
  words: Map<string, string>
}

/** Takes a fragment apart: a section, then words, each with its key. */
export function decompose(hash: string): Address {
  const [section = '', ...rest] = hash.replace(/^#/, '').split('&')
  const words = new Map<string, string>()
  for (const part of rest) {
    const at = part.indexOf('=')
    if (at > 0) words.set(part.slice(0, at), unescaped(part.slice(at + 1)))
  }
  return { section: unescaped(section), words }
}

/** Puts one together; words in the order of their keys, so that equal views have equal addresses. */
export function compose(a: Address): string {
  const words = [...a.words].sort(([x], [y]) => (x < y ? -1 : 1)).map(([k, v]) => `&${k}=${encodeURIComponent(v)}`)
  return a.section || words.length > 0 ? `#${encodeURIComponent(a.section)}${words.join('')}` : ''
}

function unescaped(s: string): string {
  try {
    return decodeURIComponent(s)
  } catch {
    return s // cut short by whoever sent it
  }
}

/** The selected seconds of each round: 1.5-3 or nothing, with commas between. */
export const ranges = {
  to: (all: readonly (Range | null)[]): string => all.map((r) => (r ? `${r[0]}_${r[1]}` : '')).join(','),
  from: (s: string): (Range | null)[] => s.split(',').map((one) => {
    const m = /^(-?\d+(?:\.\d+)?)_(-?\d+(?:\.\d+)?)$/.exec(one)
    return m && Number(m[2]) > Number(m[1]) ? [Number(m[1]), Number(m[2])] as const : null
  }),
}

/** Numbers with dots between, in few letters. */
export const numbers = {
  to: (all: readonly number[]): string => all.map((n) => n.toString(36)).join('.'),
  from: (s: string): number[] => (s === '' ? [] : s.split('.').map((x) => parseInt(x, 36))).filter((n) => Number.isInteger(n) && n >= 0),
}
