/** A client of the Esker timestamp service. @module */
export { Client } from "./client.js";
export * from "./errors.js";
export { Timestamp, TimestampRange } from "./timestamp.js";

/** @typedef {import("./client.js").ClientOptions} ClientOptions */
/** @typedef {import("./client.js").CallOptions} CallOptions */
/** @typedef {import("./client.js").ChangeAnswer} ChangeAnswer */
