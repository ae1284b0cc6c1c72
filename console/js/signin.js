// The form that asks who is there.
import { credentials } from "./api.js";
import { el, put, text } from "./dom.js";

function field(id, label, attributes) {
  return el("div", { class: "field" }, el("label", { for: id }, label), el("input", { id, ...attributes }));
}

function given(form) {
  const value = (id) => form.querySelector(`#${id}`)?.value ?? "";
  if (form.dataset.by === "token") return value("token").trim() && { token: value("token").trim() };
  return value("user") && { user: value("user"), password: value("password") };
}

function fields(by) {
  if (by === "token") {
    return [field("token", "Token (JWT)", { type: "password", autocomplete: "off", spellcheck: "false", required: true })];
  }
  return [
    field("user", "User name", { autocomplete: "username", autocapitalize: "none", spellcheck: "false", required: true }),
    field("password", "Password", { type: "password", autocomplete: "current-password" }),
  ];
}

/** Shows the form in `main`. `attempt()` asks the broker with the new credentials, and resolves to a `Failure` or to nothing. */
export function show(main, { why, attempt }) {
  const error = el("p", { class: "notice bad", role: "alert", hidden: !why }, why ?? "");
  const inputs = el("div");
  const button = el("button", { type: "submit" }, "Sign in");
  const form = el("form", { class: "sign-in", "aria-labelledby": "sign-in-title" },
    el("h2", { id: "sign-in-title" }, "Sign in"),
    el("fieldset", { class: "choice" }, el("legend", { class: "hidden" }, "With"),
      ...[["password", "Password"], ["token", "Token"]].map(([by, label], index) => el("label", {},
        el("input", { type: "radio", name: "by", value: by, checked: index === 0, onchange: () => choose(by) }), label))),
    inputs, error, button,
    el("p", { class: "quiet" }, "Kept in this tab until it is closed, and sent to this broker only: over HTTP, and over MQTT for the map."));

  function choose(by) {
    form.dataset.by = by;
    put(inputs, ...fields(by));
    inputs.querySelector("input").focus();
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const value = given(form);
    if (!value) return;
    credentials.set(value);
    button.disabled = true;
    const failure = await attempt();
    button.disabled = false;
    if (!failure) return;
    credentials.forget();
    if (failure.kind === "signed-out") text(error, "The broker does not accept this: the name or the secret is wrong, or it has expired.");
    else put(error, el("strong", {}, failure.message), ` ${failure.todo}`);
    error.hidden = false;
    inputs.querySelector("input").select();
  });

  put(main, form);
  choose("password");
}
