// @ts-check
// Changes of the cluster, asked twice. The token stays in the field where it is typed.

const CHANGE_TIMEOUT_MS = 15_000;

/** @typedef {"transfer" | "remove"} ChangeKind */
/** @typedef {(node: string) => string} Naming */
/** @type {Record<ChangeKind, { button: string, question: Naming, consequence: string, done: Naming }>} */
const CHANGES = {
  transfer: {
    button: "Make leader",
    question: (node) => `Give leadership to node ${node}?`,
    consequence: "Clients wait for some milliseconds while leadership moves.",
    done: (node) => `Leadership was given to node ${node}.`,
  },
  remove: {
    button: "Remove",
    question: (node) => `Remove node ${node} for good?`,
    consequence:
      "It gets nothing more, and its number is never used again. Fewer nodes may fail after that.",
    done: (node) => `Node ${node} was removed: stop it.`,
  },
};

/** The change that is asked for. @type {{ kind: ChangeKind, node: string, isConfirmed: boolean } | null} */
let asked = null;
const dialog = elementAs("change", HTMLDialogElement);
const tokenField = elementAs("token", HTMLInputElement);
const numberField = elementAs("number", HTMLInputElement);
const goButton = elementAs("go", HTMLButtonElement);

/**
 * @param {ChangeKind} kind
 * @param {string} node
 */
function changeButton(kind, node) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = CHANGES[kind].button;
  button.setAttribute("aria-label", `${CHANGES[kind].button}: node ${node}`);
  button.addEventListener("click", () => {
    asked = { kind, node, isConfirmed: false };
    numberField.value = "";
    setText("refusal", "");
    showQuestion();
    dialog.showModal();
    tokenField.focus();
  });
  return button;
}

function showQuestion() {
  if (!asked) return;
  const { kind, node, isConfirmed } = asked;
  const question = CHANGES[kind].question(node);
  setText("question", isConfirmed ? `Really? ${question}` : question);
  setText("consequence", CHANGES[kind].consequence);
  element("first").hidden = isConfirmed;
  element("second").hidden = !isConfirmed;
  setText(goButton, isConfirmed ? CHANGES[kind].button : "Continue");
}

/**
 * Sends a change, and returns why it was refused; nothing if it was made.
 *
 * @param {ChangeKind} kind
 * @param {string} node
 * @param {string} token
 */
async function sendChange(kind, node, token) {
  const cluster = samples.at(-1)?.status.cluster ?? "";
  /** @type {Record<string, string>} */
  const headers = { "content-type": "application/json" };
  if (token !== "") headers.authorization = `Bearer ${token}`;
  // The number as it is: it may have more digits than a number of JavaScript.
  const body = `{"cluster":${JSON.stringify(cluster)},"nodeID":${node}}`;
  const signal = AbortSignal.timeout(CHANGE_TIMEOUT_MS);
  const look = "The change may have been made, or may still be: look at the members.";
  try {
    const answer = await fetch(`cluster/${kind}`, {
      method: "POST",
      headers,
      body,
      redirect: "error",
      signal,
    });
    if (answer.ok) return "";
    const why = `Refused (${answer.status}): ${await answer.text()}`;
    return answer.status === 500 ? `${why}. ${look}` : why;
  } catch (error) {
    return `${describeError(error)}. ${look}`;
  }
}

/** @param {SubmitEvent} submitted */
async function confirmChange(submitted) {
  submitted.preventDefault();
  const change = asked;
  if (!change || goButton.disabled) return;
  setText("refusal", "");
  if (!change.isConfirmed) {
    change.isConfirmed = true;
    showQuestion();
    numberField.focus();
    return;
  }
  if (numberField.value.trim() !== change.node) {
    setText("refusal", `That is not the number ${change.node}.`);
    numberField.focus();
    return;
  }
  goButton.disabled = true;
  const refused = await sendChange(change.kind, change.node, tokenField.value.trim());
  goButton.disabled = false;
  addEvent(refused === "" ? CHANGES[change.kind].done(change.node) : refused);
  if (asked !== change) return;
  if (refused === "") {
    dialog.close();
    return;
  }
  change.isConfirmed = false;
  numberField.value = "";
  showQuestion();
  setText("refusal", refused);
  tokenField.focus();
}

elementAs("change-form", HTMLFormElement).addEventListener("submit", confirmChange);
element("cancel").addEventListener("click", () => dialog.close());
dialog.addEventListener("close", () => {
  asked = null;
});
// A page that the browser keeps, to go back to it, keeps no token.
addEventListener("pagehide", () => {
  tokenField.value = "";
});
element("insecure").hidden = isSecureContext;
