// Reading the page model out of the document.
import { PageSchema, type Page } from '../recording.ts'

/** Marks that reorder text on screen: a pod's name must not rewrite the line it stands in. */
const reordering = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

/** Parses a page model and makes every text in it harmless to show. */
export function parsePage(json: string): Page {
  const page = JSON.parse(json, (_, v: unknown) =>
    typeof v === 'string' ? v.replace(reordering, '\ufffd') : v,
  ) as Page
  if (page.schema > PageSchema) {
    throw new Error(`this page reads schema ${PageSchema}, the data has ${page.schema}`)
  }
  return page
}

/** Undoes what report.WritePage did to the data. */
export async function unpack(text: string, encoding: string): Promise<string> {
  if (encoding === 'json') return text
  if (encoding !== 'gzip-base64') throw new Error(`unknown encoding ${encoding}`)
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0))
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))
  return new Response(stream).text()
}
