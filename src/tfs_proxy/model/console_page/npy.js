// Reads numpy's npy files: shape, dtype, and the values of those types that JavaScript has arrays for.
const ARRAYS = {
  f4: Float32Array, f8: Float64Array, i1: Int8Array, i2: Int16Array, i4: Int32Array, i8: BigInt64Array,
  u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, u8: BigUint64Array, b1: Uint8Array,
};
const NAMES = { f2: "float16", f4: "float32", f8: "float64", i1: "int8", i2: "int16", i4: "int32", i8: "int64", u1: "uint8", u2: "uint16", u4: "uint32", u8: "uint64", b1: "bool" };

// {shape, dtype, values}: values are null if they can't be shown; null if the buffer is not npy at all.
export function readNpy(buffer) {
  const bytes = new Uint8Array(buffer);
  if (bytes.length < 12 || bytes[0] !== 0x93 || String.fromCharCode(...bytes.subarray(1, 6)) !== "NUMPY") return null;
  const view = new DataView(buffer);
  const isLong = bytes[6] > 1;
  const start = isLong ? 12 : 10;
  const length = isLong ? view.getUint32(8, true) : view.getUint16(8, true);
  const header = new TextDecoder("latin1").decode(bytes.subarray(start, start + length));
  const descr = /'descr':\s*'([^']*)'/.exec(header)?.[1];
  const shapeText = /'shape':\s*\(([^)]*)\)/.exec(header)?.[1];
  if (descr === undefined || shapeText === undefined) return null;
  const shape = shapeText.split(",").map((part) => part.trim()).filter(Boolean).map(Number);
  const kind = descr.slice(1);
  const count = shape.reduce((product, size) => product * size, 1);
  const MadeOf = ARRAYS[kind];
  const rest = buffer.slice(start + length);
  const isReadable = MadeOf && descr[0] !== ">" && /'fortran_order':\s*False/.test(header) && rest.byteLength >= count * MadeOf.BYTES_PER_ELEMENT;
  return { shape, dtype: NAMES[kind] ?? descr, values: isReadable ? nested(Array.from(new MadeOf(rest, 0, count), Number), shape) : null };
}

// A flat list as nested lists of this shape.
export function nested(flat, shape) {
  if (shape.length === 0) return flat[0];
  if (shape.length === 1) return flat;
  const inner = shape.slice(1);
  const size = inner.reduce((product, each) => product * each, 1);
  return Array.from({ length: shape[0] }, (_, index) => nested(flat.slice(index * size, (index + 1) * size), inner));
}

// The shape of nested lists, as their first elements tell it.
export function shapeOf(value) {
  const shape = [];
  for (let inner = value; Array.isArray(inner); inner = inner[0]) shape.push(inner.length);
  return shape;
}
