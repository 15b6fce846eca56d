// Rewrites PNG files with 256 colours each: pictures of charts look the same at a third of the size.
import { readFileSync, writeFileSync } from 'node:fs';
import UPNG from 'upng-js';

const COLORS = 256;

for (const path of process.argv.slice(2)) {
  const { buffer } = new Uint8Array(readFileSync(path));
  const picture = UPNG.decode(buffer);
  writeFileSync(path, new Uint8Array(UPNG.encode(UPNG.toRGBA8(picture), picture.width, picture.height, COLORS)));
}
