import { useEffect, useState } from 'preact/hooks'
import type { Colour } from '../model/colour.ts'

const query = matchMedia('(prefers-color-scheme: dark)')

/** Whether the reader's system is dark; canvases must be drawn anew when it changes. */
export function useDark(): boolean {
  const [dark, setDark] = useState(query.matches)
  useEffect(() => {
    const on = () => setDark(query.matches)
    query.addEventListener('change', on)
    return () => query.removeEventListener('change', on)
  }, [])
  return dark
}

export function useColour(): (c: Colour) => string {
  const dark = useDark()
  return (c) => c[dark ? 1 : 0]
}
