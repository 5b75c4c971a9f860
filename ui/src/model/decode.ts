// Reading the page model out of the document.
import { PageSchema, type Page } from '../recording.ts'

/** Marks that reorder text on screen: a pod's name must not rewrite the line it stands in. */
const reordering = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g
/** Any escape of JSON, those of such marks apart. */
const escapes = /\\(?:u(061c|200[ef]|202[a-e]|206[6-9])|[^])/gi

/**
 * Parses a model and makes every text in it harmless to show. That is done to
 * the JSON as a whole: asked for each of a million numbers it takes a second.
 */
export function parse<T>(json: string): T {
  return JSON.parse(json.replace(reordering, '\ufffd').replace(escapes, (e, mark: string | undefined) => (mark ? '\ufffd' : e))) as T
}

/** Parses a report. */
export function parsePage(json: string): Page {
  const page = parse<Page>(json)
  if (page.schema > PageSchema) {
    throw new Error(`this page reads schema ${PageSchema}, the data has ${page.schema}`)
  }
  return page
}

/** Undoes what report.WritePage did to the data. */
export async function unpack(text: string, encoding: string): Promise<string> {
  if (encoding === 'json') return text
  if (encoding !== 'gzip-base64') throw new Error(`unknown encoding ${encoding}`)
  const binary = atob(text)
  const bytes = new Uint8Array(binary.length)
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i)
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))
  return new Response(stream).text()
}
