// The address in the example is the one this page came from, so that it can be copied as it stands.
"use strict";
document.getElementById("address").textContent = new URL(".", location.href).href;
