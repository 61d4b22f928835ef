// Shows the Onceover page within Airflow: that runs no script, and leaves its frame only where a person clicks.
// Airflow hands a component no React: what it returns is the element that React's own `jsx` would make.
const TAG = "onceover";
const FLOW = /^[a-z0-9][a-z0-9-]*$/;
const home = (path = "") => new URL(`onceover/${path}`, document.baseURI).href;
// What stands on the tab of a run that is nobody's of ours. Airflow gives every run of every DAG the tab.
const NOT_OURS = "<!doctype html><main style='font: 1rem system-ui'>This DAG is not one of Onceover's.</main>";

// Asked as the person who looks: Airflow tells nobody of a run that they may not see.
const asked = async (path) => {
  const answer = await fetch(new URL(`api/v2/dags/${path}`, document.baseURI), { credentials: "same-origin" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
};

// A run that a form started has its flow among its conf; a DAG of one flow has it among its tags. Neither has a run
// of a Connect cluster, nor one whose starter left the flow out.
const shown = async (dagId, runId) => {
  const dag = encodeURIComponent(dagId);
  const [{ tags }, { conf }] = await Promise.all([
    asked(`${dag}/details`),
    asked(`${dag}/dagRuns/${encodeURIComponent(runId)}`),
  ]);
  const names = tags.map((tag) => tag.name);
  if (!names.includes(TAG)) return { srcdoc: NOT_OURS };
  const flow = conf?.flow ?? names.find((name) => name !== TAG);
  // A pattern takes what is not there for the word "undefined", which a flow may be called.
  return { src: typeof flow === "string" && FLOW.test(flow) ? home(`flows/${flow}`) : home() };
};

// A page loads itself anew; what came in its place while the server was away does not.
const watching = (find) => (frame) => {
  let closed = false;
  const load = async () => {
    const found = await find().catch(() => ({ src: home() }));
    if (!closed) Object.assign(frame, found);
  };
  const dead = () => {
    try {
      return frame.contentDocument?.querySelector("main") == null;
    } catch {
      return true;
    }
  };
  const timer = setInterval(() => {
    if (dead()) load();
  }, 10_000);
  load();
  return () => {
    closed = true;
    clearInterval(timer);
  };
};

// One for each run, and kept: React ends and begins anew what it is handed a new function for.
const watches = new Map();
const watch = (dagId, runId) => {
  const key = JSON.stringify([dagId, runId]);
  if (!watches.has(key)) {
    const find = runId === undefined ? async () => ({ src: home() }) : () => shown(dagId, runId);
    watches.set(key, watching(find));
  }
  return [key, watches.get(key)];
};

globalThis.Onceover = ({ dagId, runId }) => {
  const [key, ref] = watch(dagId, runId);
  return {
    $$typeof: Symbol.for("react.transitional.element"),
    type: "iframe",
    key,
    ref,
    props: {
      ref,
      title: "Onceover",
      sandbox: "allow-same-origin allow-top-navigation-by-user-activation",
      style: { border: 0, display: "block", height: "100%", minHeight: "85vh", width: "100%" },
    },
  };
};
