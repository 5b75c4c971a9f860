// What a reader chose, in the address's fragment: a link shows the same view.
//
//   #flame&q=runtime&sel=1.5-3      the section, then what differs from the beginning
import { useEffect, useState } from 'preact/hooks'
import { compose, decompose } from '../model/address.ts'

let kept = decompose(location.hash)
let pending = 0

/** Writes the address a little later: a drag changes a selection many times. */
function write(): void {
  clearTimeout(pending)
  pending = setTimeout(() => {
    const hash = compose(kept)
    if (hash !== location.hash) history.replaceState(null, '', hash || location.pathname + location.search)
  }, 150) as unknown as number
}

/** What is turned into a word of the address, and back. A word that means nothing is undefined. */
export interface Code<T> { to: (v: T) => string; from: (s: string) => T | undefined }

export const text: Code<string> = { to: (v) => v, from: (s) => s }
export const flag: Code<boolean> = { to: (v) => (v ? '1' : '0'), from: (s) => (s === '1' ? true : s === '0' ? false : undefined) }
export const count: Code<number> = { to: String, from: (s) => (/^-?\d+$/.test(s) ? Number(s) : undefined) }
export const oneOf = <T extends string>(...all: readonly T[]): Code<T> => ({ to: (v) => v, from: (s) => all.find((x) => x === s) })

/** A state that stands in the address while it differs from how it begins. */
export function useKept<T>(key: string, begin: T | (() => T), code: Code<T>): [T, (v: T | ((before: T) => T)) => void] {
  const [first] = useState(begin)
  const [value, set] = useState<T>(() => {
    const word = kept.words.get(key)
    return (word === undefined ? undefined : code.from(word)) ?? first
  })
  const word = code.to(value)
  useEffect(() => {
    if (word === code.to(first)) kept.words.delete(key)
    else kept.words.set(key, word)
    write()
  }, [word])
  return [value, set]
}

/** Goes to the section that the address names, and follows links to others without losing the rest. */
export function useSections(): void {
  useEffect(() => {
    const follow = () => {
      const next = decompose(location.hash)
      if (next.words.size > 0) location.reload() // a pasted address is another view
      else { kept = { ...kept, section: next.section }; write() }
    }
    addEventListener('hashchange', follow)
    const to = kept.section && kept.words.size > 0 ? document.getElementById(kept.section) : null
    if (to) requestAnimationFrame(() => requestAnimationFrame(() => to.scrollIntoView({ behavior: 'instant' })))
    return () => removeEventListener('hashchange', follow)
  }, [])
}

/** The section that a link of the page leads to stands in the address, too. */
export function goTo(section: string): void {
  kept = { ...kept, section }
  write()
  document.getElementById(section)?.scrollIntoView()
}
