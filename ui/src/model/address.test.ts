import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compose, decompose, numbers, ranges } from './address.ts'

test('an address comes back as it was, whatever a reader typed', () => {
  for (const q of ['runtime\\.(mallocgc|gcBgMarkWorker)', '&=#%', 'ü <script>', '']) {
    const a = { section: 'flame', words: new Map([['q', q], ['up', '1']]) }
    assert.deepEqual(decompose(compose(a)), a)
  }
  assert.equal(compose({ section: '', words: new Map() }), '')
  assert.equal(compose(decompose('#why')), '#why')
  assert.deepEqual(decompose('#x&q=%E0%A4').words.get('q'), '%E0%A4')
  assert.deepEqual([...decompose('#x&&=1&b').words], [])
})

test('selections and paths are numbers, and nonsense is nothing', () => {
  assert.deepEqual(ranges.from(ranges.to([[1.5, 3], null, [-2, 0.1]])), [[1.5, 3], null, [-2, 0.1]])
  assert.deepEqual(ranges.from('3_1,x,1_'), [null, null, null])
  assert.deepEqual(numbers.from(numbers.to([0, 35, 36, 4000])), [0, 35, 36, 4000])
  assert.deepEqual(numbers.from(''), [])
  assert.deepEqual(numbers.from('!.1'), [1])
})
