// Sets the chosen theme and language before the first paint. It is a file of its own because the page's policy allows
// no inline code.
(function () {
  try {
    var theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    var language = localStorage.getItem("language");
    if (language) document.documentElement.lang = language;
  } catch {
    // Storage may be forbidden; the system's theme applies then.
  }
})();
