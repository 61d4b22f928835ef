// Shows the Onceover page within Airflow. It runs nothing itself, and leaves its frame only where a person clicks.
// Airflow hands a component no React: what it returns is the element that React's own `jsx` would make.
globalThis.Onceover = () => ({
  $$typeof: Symbol.for("react.transitional.element"),
  type: "iframe",
  key: null,
  ref: null,
  props: {
    src: new URL("onceover/", document.baseURI).href,
    title: "Onceover",
    sandbox: "allow-same-origin allow-top-navigation-by-user-activation",
    style: { border: 0, display: "block", height: "100%", minHeight: "85vh", width: "100%" },
  },
});
