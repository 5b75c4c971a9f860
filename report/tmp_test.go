package report
import ("github.com/chromedp/chromedp";"testing";"os";"strings";"github.com/kubedyno/kubedyno/record";"github.com/kubedyno/kubedyno/diagnose";"github.com/kubedyno/kubedyno/diagnose/detectors")
func TestTmp(t *testing.T){
 var ins []Input
 for _, d := range strings.Fields(os.Getenv("RECS")) {
  r, err := record.Open(d); if err != nil { t.Fatal(err) }
  dg, err := diagnose.Run(r, detectors.All); if err != nil { t.Log(err) }
  WriteSummary(os.Stdout, Options{}, r.Meta(), dg, d)
  WriteDiagnosis(os.Stdout, Options{}, dg)
  ins = append(ins, Input{Recording:r, Diagnosis:dg})
 }
 if os.Getenv("SHOT") != "" { }; f,_ := os.Create("/tmp/shots/real.html"); if err := Render(f, ins, RenderOptions{Tool:"x"}); err != nil { t.Fatal(err) }; f.Close()
}
func TestShot(t *testing.T){ ctx := browser(t); w := watch(t, ctx); open(t, ctx, "file:///tmp/shots/real.html", 1400, false); w.check(t, "file:///tmp/shots/real.html")
 shot, err := chromedp.Run(ctx, chromedp.FullScreenshot(100)); if err != nil { t.Fatal(err) }; os.WriteFile("/tmp/shots/real.png", shot, 0o644) }
