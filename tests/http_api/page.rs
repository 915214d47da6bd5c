//! The page in a real browser: headless Chromium runs it against the gateway, and what it shows is read from the document
//! that it made. `PAGE_SCREENSHOT=FILE` keeps a picture to look at.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::daemon::Daemon;
use crate::tool::subscribe;
use crate::{get, publish};

const BYTES_MAX: usize = 100 * 1024;

/// The document after some seconds of the page's life.
fn document(daemon: &Daemon, width: u32, picture: Option<&str>) -> String {
    let profile = daemon.folder().join(format!("profile-{width}"));
    let mut chromium = Command::new("chromium");
    chromium
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--window-size={width},1400"))
        .args(["--virtual-time-budget=9000", "--dump-dom"]);
    if let Some(picture) = picture {
        chromium.arg(format!("--screenshot={picture}"));
    }
    let output = chromium
        .arg(format!("http://{}/", daemon.http()))
        .output()
        .expect("chromium is there: ./scripts/setup");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn it_is_one_small_file_that_loads_nothing_from_elsewhere() {
    let daemon = Daemon::started("page-file", "");
    let page = get(&daemon, "/");
    assert_eq!((page.status, page.content_type.as_str()), (200, "text/html; charset=utf-8"));
    assert_eq!(page.body, fs::read_to_string("page/index.html").unwrap());
    assert!(page.body.len() <= BYTES_MAX, "{} bytes", page.body.len());
    for word in ["src=\"", "@import", "url(", "<script src", "https://"] {
        assert!(!page.body.contains(word), "{word}");
    }
    let head = crate::curl(&daemon, "/", &["--dump-header", "-", "--output", "/dev/null"]);
    assert!(
        head.body.to_lowercase().contains("content-security-policy: default-src 'none'"),
        "{}",
        head.body
    );
}

#[test]
fn a_browser_shows_what_the_gateway_knows() {
    let daemon = Daemon::started("page-browser", "[queue.session]\nmessages_max = 4\n");
    subscribe(&daemon, &["-i", "plc <b>7</b>", "-c", "-q", "1", "-t", "plant/#", "-E"]);
    for n in 0..6 {
        publish(&daemon, "topic=plant/line1", &n.to_string());
    }
    let spoilt = "topic=sensors/%3Cimg%20src%3Dx%20onerror%3Ddocument.title%3D1%3E";
    publish(&daemon, spoilt, r#"{"value": 1, "note": "<script>document.title=2</script>"}"#);
    for n in 0..20 {
        let boiler = 60.0 + f64::from(n % 7);
        publish(
            &daemon,
            "topic=sensors/boiler/temperature",
            &format!("{{\"value\": {boiler}, \"unit\": \"C\"}}"),
        );
        publish(&daemon, "topic=sensors/hall/humidity", &format!("{}", 40 + n));
        std::thread::sleep(Duration::from_millis(150));
    }
    let picture = std::env::var("PAGE_SCREENSHOT").ok();
    let shown = document(&daemon, 1280, picture.as_deref());
    let id = get(&daemon, "/api/v1/status").json()["id"].as_str().unwrap().to_owned();
    for expected in [
        format!("<title>{id}</title>"),
        "healthy</span>".to_owned(),
        "session plc &lt;b&gt;7&lt;/b&gt; is 100 % full, then the oldest are dropped".to_owned(),
        "sensors/boiler/temperature</td>".to_owned(),
        "value 65, unit C</td>".to_owned(),
        "sensors/hall/humidity</td><td class=\"name\">59</td>".to_owned(),
        "sensors/&lt;img src=x onerror=document.title=1&gt;</td>".to_owned(),
        "queue bound</td><td class=\"number\">2</td>".to_owned(),
        "points, each".to_owned(),
        "<span id=\"connection\">live</span>".to_owned(),
    ] {
        assert!(shown.contains(&expected), "{expected:?} is not in\n{shown}");
    }
    // What clients send is text, never markup.
    assert!(!shown.contains("<img src=x") && !shown.contains("<b>7</b>"));
    if let Some(picture) = picture {
        document(&daemon, 390, Some(&picture.replace(".png", "-phone.png")));
    }
}
