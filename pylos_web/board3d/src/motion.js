// Motions of spheres: each is a function of time that ends.

const DROP = 520;
const ARC = 620;
const FADE = 460;

export const still = matchMedia("(prefers-reduced-motion: reduce)");

function ease(t) {
  return t < 0.5 ? 2 * t * t : 1 - (2 - 2 * t) ** 2 / 2;
}

/** Falls, and bounces twice. */
function bounce(t) {
  if (t < 0.55) return 1 - (t / 0.55) ** 2;
  if (t < 0.82) return 0.13 * (1 - ((t - 0.685) / 0.135) ** 2);
  return 0.03 * (1 - ((t - 0.91) / 0.09) ** 2);
}

function between(from, to, t) {
  return from + (to - from) * t;
}

/** From the reserve: over the place in an arc, then down with a bounce. */
export function drop(from, to, fromScale) {
  const height = 1.5;
  return {
    duration: DROP + 260,
    at(t) {
      const split = 0.38;
      if (t < split) {
        const s = ease(t / split);
        return {
          x: between(from.x, to.x, s),
          y: between(from.y, to.y + height, s) + Math.sin(Math.PI * s) * 0.9,
          z: between(from.z, to.z, s),
          scale: between(fromScale, 1, s),
        };
      }
      return { ...to, y: to.y + height * bounce((t - split) / (1 - split)), scale: 1 };
    },
  };
}

/** Lifted over to a higher place. */
export function arc(from, to) {
  return {
    duration: ARC,
    at(t) {
      const s = ease(t);
      const lift = Math.sin(Math.PI * s) * 1.5;
      return {
        x: between(from.x, to.x, s),
        y: between(from.y, to.y, s) + lift,
        z: between(from.z, to.z, s),
        scale: 1,
      };
    },
  };
}

/** Rises and fades; it is then in the reserve again. */
export function fade(from) {
  return {
    duration: FADE,
    at(t) {
      return { ...from, y: from.y + 1.5 * ease(t), scale: 1 - 0.25 * t, opacity: 1 - t };
    },
  };
}
