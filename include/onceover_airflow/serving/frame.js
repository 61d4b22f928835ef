// Shows the Onceover page within Airflow: that runs no script, and leaves its frame only where a person clicks.
// Airflow hands a component no React: what it returns is the element that React's own `jsx` would make.
const address = new URL("onceover/", document.baseURI).href;

// A page loads itself anew; what came in its place while the server was away does not.
const watch = (frame) => {
  const dead = () => {
    try {
      return frame.contentDocument?.querySelector("main") == null;
    } catch {
      return true;
    }
  };
  const timer = setInterval(() => {
    if (dead()) frame.src = address;
  }, 10_000);
  return () => clearInterval(timer);
};

globalThis.Onceover = () => ({
  $$typeof: Symbol.for("react.transitional.element"),
  type: "iframe",
  key: null,
  ref: watch,
  props: {
    ref: watch,
    src: address,
    title: "Onceover",
    sandbox: "allow-same-origin allow-top-navigation-by-user-activation",
    style: { border: 0, display: "block", height: "100%", minHeight: "85vh", width: "100%" },
  },
});
