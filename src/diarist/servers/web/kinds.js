// A recording is a file from anywhere: what is not of the right kind is nothing.

export const asText = value => (typeof value === "string" ? value : "");
export const asNumber = value => (Number.isFinite(value) ? value : 0);
export const asList = value => (Array.isArray(value) ? value : []);
